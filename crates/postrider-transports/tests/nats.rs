//! The transport suite on NATS JetStream, on a shared server and on one that is killed; and tests of its own features.

#![cfg(feature = "nats")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/nats.rs"]
mod server;
mod support;

use async_nats::jetstream::{self, stream::Config};
use async_trait::async_trait;
use postrider_core::{ClientOptions, Pem, PublishError, Receipt, Transport};
use postrider_testkit::{
    Kind,
    broker::Nats,
    proxy::FaultProxy,
    shared,
    transport::{Received, TransportFeatures, TransportFixture},
};
use postrider_transports::nats::{NatsBuilder, NatsTransport};
use server::{stored, stream, undo};
use std::{sync::Arc, time::Duration};
use support::{Certificate, PATIENCE, client, order, orders, publish, soon, unused_port};
use tokio::sync::Mutex;

/// Above the server's default limit.
const TOO_LARGE: usize = 1024 * 1024 + 1;

struct NatsFixture {
    url: String,
    own: Option<Mutex<Nats>>,
}

async fn shared_server() -> NatsFixture {
    NatsFixture { url: shared::url(Kind::Nats), own: None }
}

async fn own_server() -> NatsFixture {
    let own = Nats::start().await;
    NatsFixture { url: own.url().to_owned(), own: Some(Mutex::new(own)) }
}

mod shared_server_suite {
    postrider_testkit::transport_suite!(super::shared_server);
}

mod crashing_server_suite {
    postrider_testkit::transport_suite!(super::own_server);
}

fn builder(url: &str) -> NatsBuilder {
    NatsTransport::builder(client(url, PATIENCE))
}

fn transport(url: &str) -> NatsTransport {
    builder(url).build().unwrap()
}

#[async_trait]
impl TransportFixture for NatsFixture {
    fn features(&self) -> TransportFeatures {
        TransportFeatures {
            knows_destinations: true,
            keeps_order: true,
            survives_restarts: self.own.is_some(),
            too_large: Some(TOO_LARGE),
            carries_key: false,
        }
    }

    async fn transport(&self) -> Arc<dyn Transport> {
        Arc::new(transport(&self.url))
    }

    async fn nobody_there(&self) -> Arc<dyn Transport> {
        Arc::new(transport(&format!("nats://127.0.0.1:{}", unused_port())))
    }

    async fn through_proxy(&self) -> Option<(FaultProxy, Arc<dyn Transport>)> {
        let (proxy, url) = FaultProxy::before_url(&self.url).await;
        Some((proxy, Arc::new(transport(&url))))
    }

    async fn destination(&self) -> String {
        stream(&self.url, |_| ()).await.1
    }

    fn missing_destination(&self) -> String {
        "missing.stream.subject".to_owned()
    }

    async fn received(&self, destination: &str, count: usize) -> Vec<Received> {
        loop {
            let messages = stored(&self.url, destination).await;
            if messages.len() >= count {
                return messages.into_iter().map(undo).collect();
            }
            tokio::task::yield_now().await;
        }
    }

    async fn kill_and_restart(&self) {
        let mut own = self.own.as_ref().unwrap().lock().await;
        own.kill();
        own.restart().await;
    }
}

#[tokio::test]
async fn duplicate_message_is_reported_and_stored_once() {
    let url = shared::url(Kind::Nats);
    let (_, subject) = stream(&url, |_| ()).await;
    let (transport, batch) = (transport(&url), orders(3, &subject));
    for result in publish(&transport, &batch).await {
        assert_eq!(result.unwrap(), Receipt::new());
    }
    for result in publish(&transport, &batch).await {
        assert_eq!(result.unwrap(), Receipt::duplicate());
    }
    assert_eq!(stored(&url, &subject).await.len(), 3);
}

#[tokio::test]
async fn missing_stream_error_names_the_create_command() {
    let results = publish(&transport(&shared::url(Kind::Nats)), &orders(1, "missing.stream.subject")).await;
    let Err(PublishError::AddressUnavailable { source }) = &results[0] else { panic!("{results:?}") };
    let text = source.to_string();
    assert!(text.contains("nats stream add MISSING --subjects 'missing.stream.subject'"), "{text}");
}

#[tokio::test]
async fn publish_to_unexpected_stream_is_retried() {
    let url = shared::url(Kind::Nats);
    let (stream, subject) = stream(&url, |_| ()).await;
    let name = stream.cached_info().config.name.clone();
    let right = builder(&url).with_stream(name).build().unwrap();
    publish(&right, &orders(1, &subject)).await.remove(0).unwrap();
    let wrong = builder(&url).with_stream("ELSEWHERE").build().unwrap();
    let results = publish(&wrong, &orders(2, &subject)).await;
    assert!(results.iter().all(|result| matches!(result, Err(PublishError::Retry { .. }))), "{results:?}");
    assert_eq!(stored(&url, &subject).await.len(), 1);
}

#[tokio::test]
async fn full_stream_is_retried() {
    let url = shared::url(Kind::Nats);
    let (stream, subject) = stream(&url, |config| config.max_messages = 5).await;
    let (transport, batch) = (transport(&url), orders(8, &subject));
    let results = publish(&transport, &batch).await;
    assert!(results[..5].iter().all(Result::is_ok), "{results:?}");
    assert!(
        results[5..].iter().all(|result| matches!(result, Err(PublishError::Retry { .. }))),
        "{results:?}"
    );
    stream.purge().await.unwrap();
    for result in publish(&transport, &batch[5..]).await {
        result.unwrap();
    }
}

#[tokio::test]
async fn message_too_large_for_its_stream_is_rejected() {
    let url = shared::url(Kind::Nats);
    let (_, subject) = stream(&url, |config| config.max_message_size = 2_000).await;
    let mut batch = orders(3, &subject);
    batch[1].body = vec![b'x'; 2_001].into();
    let results = publish(&transport(&url), &batch).await;
    assert!(results[0].is_ok() && results[2].is_ok(), "{results:?}");
    assert!(matches!(results[1], Err(PublishError::Reject { .. })), "{results:?}");
}

/// Placeholders put names from data into addresses.
#[tokio::test]
async fn invalid_subject_is_rejected_and_harms_no_other() {
    let url = shared::url(Kind::Nats);
    let (_, subject) = stream(&url, |_| ()).await;
    let bad = ["", "a b", "a..b", ".a", "a.", "a.*", ">", "a\r\nPUB b 0", "$JS.API.STREAM.NAMES"];
    let mut batch: Vec<_> = bad.iter().map(|bad| order(0, bad)).collect();
    batch.push(order(0, &"s".repeat(100_000)));
    batch.push(order(1, &subject));
    let mut results = publish(&transport(&url), &batch).await;
    results.pop().unwrap().unwrap();
    for (result, outgoing) in results.iter().zip(&batch) {
        assert!(matches!(result, Err(PublishError::Reject { .. })), "{:?}: {result:?}", outgoing.destination);
    }
}

#[tokio::test]
async fn longest_subject_is_delivered() {
    let url = shared::url(Kind::Nats);
    let (stream, _) = stream(&url, |config| config.subjects = vec![format!("{}.>", config.name)]).await;
    let name = &stream.cached_info().config.name;
    let subject = format!("{name}.{}", "s".repeat(3_899 - name.len()));
    publish(&transport(&url), &orders(1, &subject)).await.remove(0).unwrap();
}

/// Calls that hold only a part of their permits would deadlock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn max_acks_pending_below_demand_does_not_deadlock() {
    let url = shared::url(Kind::Nats);
    let (_, subject) = stream(&url, |_| ()).await;
    let transport = Arc::new(builder(&url).with_max_acks_pending(5).build().unwrap());
    assert_eq!(transport.capacity().batch, 5);
    let calls: Vec<_> = (0..20)
        .map(|_| {
            let (transport, batch) = (Arc::clone(&transport), orders(4, &subject));
            tokio::spawn(async move { publish(&*transport, &batch).await })
        })
        .collect();
    for call in calls {
        assert!(soon(call).await.unwrap().iter().all(Result::is_ok));
    }
    assert_eq!(stored(&url, &subject).await.len(), 80);
}

/// Any subscriber of a subject may reply in place of a stream.
#[tokio::test]
async fn malformed_publish_ack_is_unknown() {
    use futures_util::StreamExt;
    let url = shared::url(Kind::Nats);
    let subject = format!("service.{}", uuid::Uuid::now_v7().simple());
    let client = async_nats::connect(&url).await.unwrap();
    let mut requests = client.subscribe(subject.clone()).await.unwrap();
    client.flush().await.unwrap();
    let service = async {
        for result in ["pong", "{}", r#"{"stream":"","seq":1}"#] {
            let request = requests.next().await.unwrap();
            client.publish(request.reply.unwrap(), result.into()).await.unwrap();
        }
    };
    let transport = transport(&url);
    let batch = orders(3, &subject);
    let (results, ()) = soon(async { tokio::join!(publish(&transport, &batch), service) }).await;
    assert!(results.iter().all(|result| matches!(result, Err(PublishError::Unknown { .. }))), "{results:?}");
}

/// A late or repeated reply does not count for messages sent afterwards.
#[tokio::test]
async fn late_reply_is_not_taken_for_another_message() {
    use futures_util::StreamExt;
    let url = shared::url(Kind::Nats);
    let subject = format!("service.{}", uuid::Uuid::now_v7().simple());
    let client = async_nats::connect(&url).await.unwrap();
    let mut requests = client.subscribe(subject.clone()).await.unwrap();
    client.flush().await.unwrap();
    let service = async {
        for results in [&[ACCEPTED, ACCEPTED][..], &["pong"]] {
            let reply = requests.next().await.unwrap().reply.unwrap();
            for result in results {
                client.publish(reply.clone(), (*result).into()).await.unwrap();
            }
        }
    };
    let transport = transport(&url);
    let publishing = async {
        publish(&transport, &orders(1, &subject)).await.remove(0).unwrap();
        publish(&transport, &orders(1, &subject)).await.remove(0)
    };
    let (result, ()) = soon(async { tokio::join!(publishing, service) }).await;
    assert!(matches!(result, Err(PublishError::Unknown { .. })), "{result:?}");
}

const ACCEPTED: &str = r#"{"stream":"ORDERS","seq":1}"#;

#[tokio::test]
async fn url_credentials_are_used_and_never_shown() {
    let server = Nats::start_with(&["--user", "ann", "--pass", "s3 cret/"]).await;
    let at = format!("127.0.0.1:{}", server.port());
    let good = format!("nats://ann:s3%20cret%2F@{at}");
    let admin = async_nats::ConnectOptions::with_user_and_password("ann".into(), "s3 cret/".into());
    let admin = jetstream::new(admin.connect(&at).await.unwrap());
    let config = Config { name: "ORDERS".into(), subjects: vec!["orders".into()], ..Config::default() };
    admin.create_stream(config).await.unwrap();
    publish(&transport(&good), &orders(1, "orders")).await.remove(0).unwrap();

    let bad = transport(&format!("nats://ann:wr0ng@{at}"));
    let results = publish(&bad, &orders(1, "orders")).await;
    assert!(matches!(results[0], Err(PublishError::Unavailable { .. })), "{results:?}");
    assert!(!format!("{results:?} {bad:?}").contains("wr0ng"), "{results:?} {bad:?}");
    let error = NatsTransport::connect("http://ann:wr0ng@host").unwrap_err().to_string();
    assert!(error.starts_with("url: ") && !error.contains("wr0ng"), "{error}");
}

/// A server with this configuration file, and its folder.
async fn configured(configuration: &str) -> (Nats, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("nats.conf");
    std::fs::write(&file, configuration).unwrap();
    (Nats::start_with(&["--config", file.to_str().unwrap()]).await, folder)
}

#[tokio::test]
async fn message_above_server_limit_is_rejected() {
    let (server, _folder) = configured("max_payload: 4000").await;
    let (_, subject) = stream(server.url(), |_| ()).await;
    let mut batch = orders(3, &subject);
    batch[1].body = vec![b'x'; 4_001].into();
    // Too large together with its headers.
    batch[2].body = vec![b'x'; 3_900].into();
    let results = publish(&transport(server.url()), &batch).await;
    assert!(results[0].is_ok(), "{results:?}");
    assert!(
        results[1..].iter().all(|result| matches!(result, Err(PublishError::Reject { .. }))),
        "{results:?}"
    );
}

#[tokio::test]
async fn tls_accepts_only_certificates_of_the_ca_bundle() {
    let (ours, theirs) = (Certificate::new(), Certificate::new());
    let (server, _folder) =
        configured(&format!("tls {{ cert_file: {:?}, key_file: {:?} }}", ours.certificate(), ours.key()))
            .await;
    let url = format!("tls://localhost:{}", server.port());
    // Of its own configuration: the client would use the crypto provider of the process, and there is none.
    let trusting = ClientOptions::default().with_ca_bundle(ours.certificate());
    let tls = postrider_tls::client_config(&trusting).unwrap();
    let admin = async_nats::ConnectOptions::new().tls_client_config(tls);
    let admin = jetstream::new(admin.connect(&url).await.unwrap());
    let config = Config { name: "ORDERS".into(), subjects: vec!["orders".into()], ..Config::default() };
    admin.create_stream(config).await.unwrap();

    let with_ca_bundle = |url: &str, file| {
        NatsTransport::connect(client(url, PATIENCE).with_ca_bundle(Pem::File(file))).unwrap()
    };
    publish(&with_ca_bundle(&url, ours.certificate()), &orders(1, "orders")).await.remove(0).unwrap();
    // The server requires TLS, with any URL scheme.
    let asked = format!("nats://localhost:{}", server.port());
    publish(&with_ca_bundle(&asked, ours.certificate()), &orders(1, "orders")).await.remove(0).unwrap();
    // The certificate is for another host name.
    let elsewhere = format!("tls://127.0.0.1:{}", server.port());
    let plain = shared::url(Kind::Nats).replace("nats://", "tls://");
    for untrusted in [
        with_ca_bundle(&url, theirs.certificate()),
        transport(&url),
        transport(&asked),
        with_ca_bundle(&elsewhere, ours.certificate()),
        with_ca_bundle(&plain, ours.certificate()),
    ] {
        let results = publish(&untrusted, &orders(1, "orders")).await;
        assert!(matches!(results[0], Err(PublishError::Unavailable { .. })), "{untrusted:?}: {results:?}");
    }
}

/// The server does not say which message it refused, so the result is unknown.
#[tokio::test]
async fn missing_permission_makes_the_subject_unavailable() {
    let (server, _folder) = configured(
        r#"authorization { default_permissions: { publish: { deny: "secret.>" } },
        users: [{ user: ann, password: pw }] }"#,
    )
    .await;
    let url = server.url().replace("nats://", "nats://ann:pw@");
    let transport = NatsTransport::connect(client(url, Duration::from_secs(2))).unwrap();
    let results = publish(&transport, &orders(1, "secret.plans")).await;
    let Err(PublishError::AddressUnavailable { source }) = &results[0] else { panic!("{results:?}") };
    let text = source.to_string();
    assert!(text.contains("allow it for this user") && text.contains("Permissions Violation"), "{text}");
}

#[test]
fn invalid_settings_are_rejected_with_the_reason() {
    let error = |builder: NatsBuilder| builder.build().unwrap_err().to_string();
    let url = "nats://127.0.0.1:4222";
    assert_eq!(
        error(NatsTransport::builder(url).with_max_acks_pending(0)),
        "max_acks_pending: must be between 1 and 1,000,000"
    );
    assert_eq!(
        error(NatsTransport::builder(ClientOptions::new(url).with_request_timeout(Duration::ZERO))),
        "request_timeout: is zero; nothing would ever be accepted"
    );
    assert_eq!(
        error(NatsTransport::builder(ClientOptions::new(url).with_request_timeout(Duration::MAX))),
        "request_timeout: is longer than a day; give less"
    );
    assert_eq!(
        error(NatsTransport::builder(url).with_stream("a.b")),
        "stream: \"a.b\" is not a valid stream name: no blanks, '.', '*', '>' or slashes"
    );
    assert!(error(NatsTransport::builder(url).with_credentials("nothing")).starts_with("credentials: "));
    assert!(error(NatsTransport::builder("nats://")).starts_with("url: "));
}
