//! Kafka passes the suite, on a server that all tests share and on one that is killed.

#![cfg(feature = "kafka")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/kafka.rs"]
mod server;
mod support;

use async_trait::async_trait;
use postrider_core::{ClientOptions, Pem, PublishError, Transport};
use postrider_testkit::{
    Kind,
    broker::Kafka,
    proxy::{Direction, Fault, FaultProxy},
    shared,
    transport::{Received, TransportFeatures, TransportFixture},
};
use postrider_transports::kafka::{Compression, KafkaOptions, KafkaTransport, SaslMechanism};
use rdkafka::mocking::MockCluster;
use server::Cluster;
use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, SystemTime},
};
use support::{Certificate, PATIENCE, client, order, orders, publish, unused_port};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{Mutex, OnceCell},
    task::JoinSet,
};
use tokio_rustls::TlsAcceptor;

/// More than the client's default limit.
const TOO_LARGE: usize = 1_000_001;

struct KafkaFixture {
    url: String,
    own: Option<Mutex<Kafka>>,
    /// A server that advertises the address of a proxy, and that proxy's port. Tests that need a proxy use it instead of the other server.
    behind: OnceCell<(Kafka, u16)>,
}

impl KafkaFixture {
    fn url(&self) -> &str {
        self.behind.get().map_or(&self.url, |(behind, _)| behind.url())
    }
}

async fn shared_server() -> KafkaFixture {
    KafkaFixture { url: shared::url(Kind::Kafka), own: None, behind: OnceCell::new() }
}

async fn own_server() -> KafkaFixture {
    let own = Kafka::start().await;
    KafkaFixture { url: own.url().to_owned(), own: Some(Mutex::new(own)), behind: OnceCell::new() }
}

mod on_a_shared_server {
    postrider_testkit::transport_suite!(super::shared_server);
}

mod on_a_server_that_crashes {
    postrider_testkit::transport_suite!(super::own_server);
}

fn options(url: &str) -> KafkaOptions {
    KafkaOptions::new(client(url, PATIENCE / 2))
}

fn transport(url: &str) -> KafkaTransport {
    options(url).build().unwrap()
}

#[async_trait]
impl TransportFixture for KafkaFixture {
    fn features(&self) -> TransportFeatures {
        TransportFeatures {
            knows_destinations: true,
            keeps_order: true,
            survives_restarts: self.own.is_some(),
            too_large: Some(TOO_LARGE),
            carries_key: true,
        }
    }

    async fn transport(&self) -> Arc<dyn Transport> {
        Arc::new(transport(self.url()))
    }

    async fn nobody_there(&self) -> Arc<dyn Transport> {
        Arc::new(transport(&format!("kafka://127.0.0.1:{}", unused_port())))
    }

    async fn through_proxy(&self) -> Option<(FaultProxy, Arc<dyn Transport>)> {
        let (behind, port) = self.behind.get_or_init(server::behind_a_proxy).await;
        let proxy = FaultProxy::on(*port, &format!("127.0.0.1:{}", behind.port())).await;
        let transport = transport(&format!("kafka://{}", proxy.address()));
        Some((proxy, Arc::new(transport)))
    }

    async fn destination(&self) -> String {
        Cluster::at(self.url()).topic().await
    }

    fn missing_destination(&self) -> String {
        "nobody-made-this".to_owned()
    }

    async fn received(&self, destination: &str, count: usize) -> Vec<Received> {
        Cluster::at(self.url()).received(destination, count).await
    }

    async fn kill_and_restart(&self) {
        let mut own = self.own.as_ref().unwrap().lock().await;
        own.kill();
        own.restart().await;
    }
}

#[tokio::test]
async fn publish_to_missing_topic_does_not_create_it_and_error_names_command() {
    let url = shared::url(Kind::Kafka);
    let topic = format!("t-{}", uuid::Uuid::now_v7().simple());
    let transport = transport(&url);
    let results = publish(&transport, &orders(2, &topic)).await;
    for result in &results {
        let Err(PublishError::AddressUnavailable { source }) = result else { panic!("{results:?}") };
        let text = source.to_string();
        assert!(
            text.contains(&format!("topic {topic} does not exist; create it: kafka-topics.sh")),
            "{text}"
        );
    }
    assert!(!Cluster::at(&url).exists(&topic).await, "the lookup created it");
    // Once the topic is created, the same transport finds it.
    Cluster::at(&url).create(&topic, 1, 1, &[]).await;
    for result in publish(&transport, &orders(2, &topic)).await {
        result.unwrap();
    }
    assert_eq!(Cluster::at(&url).records(&topic).await.len(), 2);
}

/// Address templates can produce any name.
#[tokio::test]
async fn publish_to_invalid_topic_is_rejected_and_others_are_accepted() {
    let url = shared::url(Kind::Kafka);
    let topic = Cluster::at(&url).topic().await;
    let bad = ["", ".", "..", "a b", "a/b", "größe", "a\0b"];
    let mut batch: Vec<_> = bad.iter().map(|bad| order(0, bad)).collect();
    batch.push(order(0, &"t".repeat(250)));
    batch.push(order(1, &topic));
    let mut results = publish(&transport(&url), &batch).await;
    results.pop().unwrap().unwrap();
    for (result, outgoing) in results.iter().zip(&batch) {
        assert!(matches!(result, Err(PublishError::Reject { .. })), "{:?}: {result:?}", outgoing.destination);
    }
    assert_eq!(Cluster::at(&url).records(&topic).await.len(), 1);
}

#[tokio::test]
async fn key_maps_to_one_partition_and_keyless_messages_are_spread() {
    let url = shared::url(Kind::Kafka);
    let cluster = Cluster::at(&url);
    let topic = cluster.topic_with(6, 1, &[]).await;
    let mut batch = orders(60, &topic);
    for (number, outgoing) in batch.iter_mut().enumerate().take(30) {
        outgoing.key = Some(format!("key-{}", number % 3).parse().unwrap());
    }
    for result in publish(&transport(&url), &batch).await {
        result.unwrap();
    }
    let records = cluster.records(&topic).await;
    assert_eq!(records.len(), 60);
    let partitions = |key: &str| -> BTreeSet<i32> {
        let of_key = records.iter().filter(|record| record.received.key.as_deref() == Some(key));
        of_key.map(|record| record.partition).collect()
    };
    for number in 0..3 {
        assert_eq!(partitions(&format!("key-{number}")).len(), 1);
    }
    let spread: BTreeSet<i32> = batch[30..].iter().flat_map(|one| partitions(&one.id.to_string())).collect();
    assert!(spread.len() > 1, "{spread:?}");
}

/// Kafka keeps records by their age: a message that waited for a week must not be a week old on arrival.
#[tokio::test]
async fn delayed_message_gets_arrival_time_as_timestamp() {
    let url = shared::url(Kind::Kafka);
    let topic = Cluster::at(&url).topic().await;
    let mut batch = orders(1, &topic);
    batch[0].staged_at -= Duration::from_secs(30 * 24 * 60 * 60);
    let before = SystemTime::now() - Duration::from_secs(60);
    publish(&transport(&url), &batch).await.remove(0).unwrap();
    let millis = Cluster::at(&url).records(&topic).await[0].timestamp;
    assert!(SystemTime::UNIX_EPOCH + Duration::from_millis(millis) > before, "{millis}");
}

/// Tansu accepts Snappy, but cannot return it: Snappy is tested on librdkafka's mock cluster.
#[tokio::test]
async fn compressed_messages_are_delivered() {
    let mock = MockCluster::new(1).unwrap();
    mock.create_topic("orders", 1, 1).unwrap();
    let url = shared::url(Kind::Kafka);
    let lz4 = (Compression::Lz4, url.clone(), Cluster::at(&url).topic().await);
    let snappy = (Compression::Snappy, mock.bootstrap_servers(), "orders".to_owned());
    for (compression, url, topic) in [lz4, snappy] {
        let transport = options(&url).with_compression(compression).build().unwrap();
        for result in publish(&transport, &orders(50, &topic)).await {
            result.unwrap();
        }
        assert_eq!(Cluster::at(&url).records(&topic).await.len(), 50, "{compression:?}");
    }
}

/// Within the ack timeout the client retries by itself. The broker recognises retries, so that no record is duplicated or reordered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cut_connections_neither_duplicate_nor_reorder() {
    let (behind, port) = server::behind_a_proxy().await;
    let proxy = FaultProxy::on(port, &format!("127.0.0.1:{}", behind.port())).await;
    let cluster = Cluster::at(behind.url());
    let topic = cluster.topic().await;
    // Many small requests, several of them in flight at the same time.
    let url = format!("kafka://{}", proxy.address());
    let transport = Arc::new(options(&url).with_property("batch.num.messages", "3").build().unwrap());
    publish(&*transport, &orders(1, &topic)).await.remove(0).unwrap();
    let mut batch = orders(300, &topic);
    for outgoing in &mut batch {
        outgoing.key = Some("17".parse().unwrap());
    }
    let sending = {
        let (transport, batch) = (Arc::clone(&transport), batch.clone());
        tokio::spawn(async move { publish(&*transport, &batch).await })
    };
    for bytes in [2_000, 5_000, 9_000] {
        let before = proxy.counts().connections;
        proxy.set_once(Fault::CutAfter { direction: Direction::ToServer, bytes });
        if sending.is_finished() {
            break;
        }
        proxy.until(|counts| counts.connections > before).await;
    }
    proxy.set(Fault::None);
    for result in support::soon(sending).await.unwrap() {
        result.unwrap();
    }
    let arrived: Vec<String> =
        cluster.records(&topic).await[1..].iter().map(|one| one.received.identity().to_owned()).collect();
    let sent: Vec<String> = batch.iter().map(|outgoing| outgoing.id.to_string()).collect();
    assert_eq!(arrived, sent);
}

/// Messages that a cancelled call left in the client's queue are dropped with the client: they do not arrive after later messages.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancelled_publish_does_not_arrive_later() {
    let (behind, port) = server::behind_a_proxy().await;
    let proxy = FaultProxy::on(port, &format!("127.0.0.1:{}", behind.port())).await;
    let cluster = Cluster::at(behind.url());
    let topic = cluster.topic().await;
    let transport = transport(&format!("kafka://{}", proxy.address()));
    publish(&transport, &orders(1, &topic)).await.remove(0).unwrap();
    proxy.set(Fault::Refuse);
    let (given_up, later) = (orders(20, &topic), orders(20, &topic));
    tokio::time::timeout(Duration::from_millis(300), transport.publish(&given_up)).await.unwrap_err();
    // The next call has a client of its own, and reaches no broker, either.
    for result in publish(&transport, &later).await {
        assert!(matches!(result, Err(PublishError::Unavailable { .. })), "{result:?}");
    }
    proxy.set(Fault::None);
    support::soon(async {
        while !transport.publish(&later).await.iter().all(Result::is_ok) {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let arrived: Vec<String> =
        cluster.records(&topic).await.iter().map(|one| one.received.identity().to_owned()).collect();
    for outgoing in &given_up {
        assert!(
            !arrived.contains(&outgoing.id.to_string()),
            "{} arrived though nobody waits for it",
            outgoing.id
        );
    }
}

/// Terminates TLS on one port, and forwards the plain text to another.
async fn ends_tls(port: u16, to: u16, certificate: &Certificate) -> JoinSet<()> {
    use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
    let shown = vec![CertificateDer::from_pem_file(certificate.certificate()).unwrap()];
    let key = PrivateKeyDer::from_pem_file(certificate.key()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config =
        rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let acceptor =
        TlsAcceptor::from(Arc::new(config.with_no_client_auth().with_single_cert(shown, key).unwrap()));
    let listener = TcpListener::bind(("127.0.0.1", port)).await.unwrap();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let mut connections = JoinSet::new();
        loop {
            let (client, _) = listener.accept().await.unwrap();
            let acceptor = acceptor.clone();
            connections.spawn(async move {
                let Ok(mut client) = acceptor.accept(client).await else { return };
                let mut server = TcpStream::connect(("127.0.0.1", to)).await.unwrap();
                tokio::io::copy_bidirectional(&mut client, &mut server).await.ok();
            });
        }
    });
    tasks
}

#[tokio::test]
async fn tls_requires_trusted_certificate() {
    // For the address, too, which the server advertises to its clients.
    let names = ["localhost", "127.0.0.1"];
    let (ours, theirs) = (Certificate::of(&names), Certificate::of(&names));
    let (behind, port) = server::behind_a_proxy().await;
    let _tls = ends_tls(port, behind.port(), &ours).await;
    let topic = Cluster::at(&format!("localhost:{port}")).trusting(&ours.certificate()).topic().await;
    let trusting = |url: &str, certificate: &Certificate| {
        let client = ClientOptions::new(url).with_connect_timeout(Duration::from_secs(3));
        KafkaTransport::connect(client.with_ca_bundle(certificate.certificate())).unwrap()
    };
    let url = format!("kafka+ssl://localhost:{port}");
    publish(&trusting(&url, &ours), &orders(1, &topic)).await.remove(0).unwrap();
    let plain = ClientOptions::new(format!("kafka://localhost:{port}"));
    let plain = plain.with_connect_timeout(Duration::from_secs(3));
    for refused in [trusting(&url, &theirs), KafkaTransport::connect(plain).unwrap()] {
        let results = publish(&refused, &orders(1, &topic)).await;
        assert!(matches!(results[0], Err(PublishError::Unavailable { .. })), "{refused:?}: {results:?}");
    }
}

/// This server has no users: every login fails.
#[tokio::test]
async fn refused_password_is_unavailable_and_never_shown() {
    let client = ClientOptions::new(shared::url(Kind::Kafka))
        .with_password("ann", "s3cret")
        .with_connect_timeout(Duration::from_secs(3));
    let transport = KafkaOptions::new(client).with_sasl(SaslMechanism::ScramSha256).build().unwrap();
    let results = publish(&transport, &orders(1, "orders")).await;
    assert!(matches!(results[0], Err(PublishError::Unavailable { .. })), "{results:?}");
    assert!(!format!("{results:?} {transport:?}").contains("s3cret"), "{results:?} {transport:?}");
}

#[test]
fn invalid_settings_are_refused_with_reason() {
    let refused = |options: KafkaOptions| options.build().unwrap_err().to_string();
    let url = "kafka://a:9092,b:9092";
    let new = || KafkaOptions::new(url);
    let with_bundle = |url| ClientOptions::new(url).with_ca_bundle(Pem::file("/nobody/has/this.pem"));
    let errors = [
        refused(KafkaOptions::new("http://a:9092")),
        refused(KafkaOptions::new("kafka://a")),
        refused(KafkaOptions::new("kafka://ann:s3cret@a:9092")),
        refused(KafkaOptions::new("kafka://a:9092,kafka+ssl://b:9093")),
        refused(KafkaOptions::new(ClientOptions::new(url).with_request_timeout(Duration::ZERO))),
        refused(KafkaOptions::new(ClientOptions::new(url).with_connect_timeout(Duration::MAX))),
        refused(new().with_message_bytes(0)),
        refused(new().with_linger(Duration::from_secs(60))),
        refused(KafkaOptions::new(with_bundle(url))),
        refused(KafkaOptions::new(with_bundle("kafka+ssl://a:9092"))),
        refused(new().with_sasl(SaslMechanism::Plain)),
        refused(
            KafkaOptions::new(ClientOptions::new(url).with_token("s3cret")).with_sasl(SaslMechanism::Plain),
        ),
        refused(KafkaOptions::new(ClientOptions::new(url).with_password("ann", "s3cret"))),
        refused(new().with_property("acks", "1")),
        refused(new().with_property("request.required.acks", "0")),
        refused(new().with_property("enable.idempotence", "false")),
        refused(new().with_property("allow.auto.create.topics", "true")),
        refused(new().with_property("message.timeout.ms", "0")),
        refused(new().with_property("transactional.id", "shop")),
        refused(new().with_property("partitioner", "random")),
        refused(new().with_property("max.in.flight", "many")),
        refused(new().with_property("max.in.flight", "100")),
        refused(new().with_property("retries", "0")),
        refused(new().with_property("nobody.knows", "this")),
        refused(new().with_property("ssl.key.password", "\0s3cret")),
    ];
    assert!(!errors.join("\n").contains("s3cret"), "{errors:#?}");
    insta::assert_snapshot!("settings", errors.join("\n"));
    for (name, value) in [
        ("acks", "all"),
        ("acks", "-1"),
        ("enable.idempotence", "true"),
        ("partitioner", "consistent_random"),
    ] {
        new().with_property(name, value).build().unwrap();
    }
}
