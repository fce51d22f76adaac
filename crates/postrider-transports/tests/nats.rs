//! NATS JetStream passes the suite, on a server that all tests share and on one that is killed.

#![cfg(feature = "nats")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/nats.rs"]
mod server;
mod support;

use async_nats::jetstream::{self, stream::Config};
use async_trait::async_trait;
use postrider_core::{PublishError, Receipt, Transport};
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
use support::{Certificate, PATIENCE, order, orders, publish, soon, unused_port};
use tokio::sync::Mutex;

/// More than a server takes unless told otherwise.
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

mod on_a_shared_server {
    postrider_testkit::transport_suite!(super::shared_server);
}

mod on_a_server_that_crashes {
    postrider_testkit::transport_suite!(super::own_server);
}

fn builder(url: &str) -> NatsBuilder {
    NatsTransport::builder(url).with_ack_timeout(PATIENCE).with_connect_timeout(PATIENCE)
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
        "nobody.holds.this".to_owned()
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
async fn a_message_that_is_there_already_is_told_and_kept_once() {
    let url = shared::url(Kind::Nats);
    let (_, subject) = stream(&url, |_| ()).await;
    let (transport, batch) = (transport(&url), orders(3, &subject));
    for answer in publish(&transport, &batch).await {
        assert_eq!(answer.unwrap(), Receipt::new());
    }
    for answer in publish(&transport, &batch).await {
        assert_eq!(answer.unwrap(), Receipt::duplicate());
    }
    assert_eq!(stored(&url, &subject).await.len(), 3);
}

#[tokio::test]
async fn without_a_stream_the_answer_says_how_to_make_one() {
    let answers = publish(&transport(&shared::url(Kind::Nats)), &orders(1, "nobody.holds.this")).await;
    let Err(PublishError::Retry { source, .. }) = &answers[0] else { panic!("{answers:?}") };
    let text = source.to_string();
    assert!(text.contains("nats stream add NOBODY --subjects 'nobody.holds.this'"), "{text}");
}

#[tokio::test]
async fn another_stream_than_the_expected_one_is_refused() {
    let url = shared::url(Kind::Nats);
    let (stream, subject) = stream(&url, |_| ()).await;
    let name = stream.cached_info().config.name.clone();
    let right = builder(&url).with_stream(name).build().unwrap();
    publish(&right, &orders(1, &subject)).await.remove(0).unwrap();
    let wrong = builder(&url).with_stream("ELSEWHERE").build().unwrap();
    let answers = publish(&wrong, &orders(2, &subject)).await;
    assert!(answers.iter().all(|answer| matches!(answer, Err(PublishError::Retry { .. }))), "{answers:?}");
    assert_eq!(stored(&url, &subject).await.len(), 1);
}

#[tokio::test]
async fn a_full_stream_refuses_for_now() {
    let url = shared::url(Kind::Nats);
    let (stream, subject) = stream(&url, |config| config.max_messages = 5).await;
    let (transport, batch) = (transport(&url), orders(8, &subject));
    let answers = publish(&transport, &batch).await;
    assert!(answers[..5].iter().all(Result::is_ok), "{answers:?}");
    assert!(
        answers[5..].iter().all(|answer| matches!(answer, Err(PublishError::Retry { .. }))),
        "{answers:?}"
    );
    stream.purge().await.unwrap();
    for answer in publish(&transport, &batch[5..]).await {
        answer.unwrap();
    }
}

#[tokio::test]
async fn what_is_too_large_for_its_stream_is_refused_for_good() {
    let url = shared::url(Kind::Nats);
    let (_, subject) = stream(&url, |config| config.max_message_size = 2_000).await;
    let mut batch = orders(3, &subject);
    batch[1].body = vec![b'x'; 2_001].into();
    let answers = publish(&transport(&url), &batch).await;
    assert!(answers[0].is_ok() && answers[2].is_ok(), "{answers:?}");
    assert!(matches!(answers[1], Err(PublishError::Reject { .. })), "{answers:?}");
}

/// Names that somebody made up end up in templates.
#[tokio::test]
async fn what_is_no_subject_is_refused_for_good_and_harms_nobody() {
    let url = shared::url(Kind::Nats);
    let (_, subject) = stream(&url, |_| ()).await;
    let bad = ["", "a b", "a..b", ".a", "a.", "a.*", ">", "a\r\nPUB b 0", "$JS.API.STREAM.NAMES"];
    let mut batch: Vec<_> = bad.iter().map(|bad| order(0, bad)).collect();
    batch.push(order(0, &"s".repeat(100_000)));
    batch.push(order(1, &subject));
    let mut answers = publish(&transport(&url), &batch).await;
    answers.pop().unwrap().unwrap();
    for (answer, outgoing) in answers.iter().zip(&batch) {
        assert!(matches!(answer, Err(PublishError::Reject { .. })), "{:?}: {answer:?}", outgoing.destination);
    }
}

#[tokio::test]
async fn the_longest_subject_arrives() {
    let url = shared::url(Kind::Nats);
    let (stream, _) = stream(&url, |config| config.subjects = vec![format!("{}.>", config.name)]).await;
    let name = &stream.cached_info().config.name;
    let subject = format!("{name}.{}", "s".repeat(3_899 - name.len()));
    publish(&transport(&url), &orders(1, &subject)).await.remove(0).unwrap();
}

/// Calls that have only a part of their room would wait for each other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn few_acknowledgements_at_a_time_are_enough_for_many_calls() {
    let url = shared::url(Kind::Nats);
    let (_, subject) = stream(&url, |_| ()).await;
    let transport = Arc::new(builder(&url).with_acks_pending(5).build().unwrap());
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

/// Whoever listens on a subject may answer in the place of a stream.
#[tokio::test]
async fn an_answer_that_is_none_is_unknown() {
    use futures_util::StreamExt;
    let url = shared::url(Kind::Nats);
    let subject = format!("service.{}", uuid::Uuid::now_v7().simple());
    let client = async_nats::connect(&url).await.unwrap();
    let mut requests = client.subscribe(subject.clone()).await.unwrap();
    client.flush().await.unwrap();
    let service = async {
        for answer in ["pong", "{}", r#"{"stream":"","seq":1}"#] {
            let request = requests.next().await.unwrap();
            client.publish(request.reply.unwrap(), answer.into()).await.unwrap();
        }
    };
    let transport = transport(&url);
    let batch = orders(3, &subject);
    let (answers, ()) = soon(async { tokio::join!(publish(&transport, &batch), service) }).await;
    assert!(answers.iter().all(|answer| matches!(answer, Err(PublishError::Unknown { .. }))), "{answers:?}");
}

/// An answer that comes late, or twice, says nothing of what is sent afterwards.
#[tokio::test]
async fn a_second_answer_is_not_taken_for_that_to_another_message() {
    use futures_util::StreamExt;
    let url = shared::url(Kind::Nats);
    let subject = format!("service.{}", uuid::Uuid::now_v7().simple());
    let client = async_nats::connect(&url).await.unwrap();
    let mut requests = client.subscribe(subject.clone()).await.unwrap();
    client.flush().await.unwrap();
    let service = async {
        for answers in [&[ACCEPTED, ACCEPTED][..], &["pong"]] {
            let reply = requests.next().await.unwrap().reply.unwrap();
            for answer in answers {
                client.publish(reply.clone(), (*answer).into()).await.unwrap();
            }
        }
    };
    let transport = transport(&url);
    let publishing = async {
        publish(&transport, &orders(1, &subject)).await.remove(0).unwrap();
        publish(&transport, &orders(1, &subject)).await.remove(0)
    };
    let (answer, ()) = soon(async { tokio::join!(publishing, service) }).await;
    assert!(matches!(answer, Err(PublishError::Unknown { .. })), "{answer:?}");
}

const ACCEPTED: &str = r#"{"stream":"ORDERS","seq":1}"#;

#[tokio::test]
async fn the_login_of_the_url_is_used_and_never_shown() {
    let server = Nats::start_with(&["--user", "ann", "--pass", "s3 cret/"]).await;
    let at = format!("127.0.0.1:{}", server.port());
    let good = format!("nats://ann:s3%20cret%2F@{at}");
    let admin = async_nats::ConnectOptions::with_user_and_password("ann".into(), "s3 cret/".into());
    let admin = jetstream::new(admin.connect(&at).await.unwrap());
    let config = Config { name: "ORDERS".into(), subjects: vec!["orders".into()], ..Config::default() };
    admin.create_stream(config).await.unwrap();
    publish(&transport(&good), &orders(1, "orders")).await.remove(0).unwrap();

    let bad = transport(&format!("nats://ann:wr0ng@{at}"));
    let answers = publish(&bad, &orders(1, "orders")).await;
    assert!(matches!(answers[0], Err(PublishError::Down { .. })), "{answers:?}");
    assert!(!format!("{answers:?} {bad:?}").contains("wr0ng"), "{answers:?} {bad:?}");
    let error = NatsTransport::connect("http://ann:wr0ng@host").unwrap_err().to_string();
    assert!(error.starts_with("url: ") && !error.contains("wr0ng"), "{error}");
}

/// A server with a configuration of its own, and the folder that holds it.
async fn configured(configuration: &str) -> (Nats, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("nats.conf");
    std::fs::write(&file, configuration).unwrap();
    (Nats::start_with(&["--config", file.to_str().unwrap()]).await, folder)
}

#[tokio::test]
async fn the_server_says_how_large_a_message_may_be() {
    let (server, _folder) = configured("max_payload: 4000").await;
    let (_, subject) = stream(server.url(), |_| ()).await;
    let mut batch = orders(3, &subject);
    batch[1].body = vec![b'x'; 4_001].into();
    // With its headers it is too large.
    batch[2].body = vec![b'x'; 3_900].into();
    let answers = publish(&transport(server.url()), &batch).await;
    assert!(answers[0].is_ok(), "{answers:?}");
    assert!(
        answers[1..].iter().all(|answer| matches!(answer, Err(PublishError::Reject { .. }))),
        "{answers:?}"
    );
}

#[tokio::test]
async fn tls_is_spoken_with_those_who_are_trusted_only() {
    let (ours, theirs) = (Certificate::new(), Certificate::new());
    let (server, _folder) =
        configured(&format!("tls {{ cert_file: {:?}, key_file: {:?} }}", ours.certificate(), ours.key()))
            .await;
    let url = format!("tls://localhost:{}", server.port());
    let admin = async_nats::ConnectOptions::new().add_root_certificates(ours.certificate());
    let admin = jetstream::new(admin.connect(&url).await.unwrap());
    let config = Config { name: "ORDERS".into(), subjects: vec!["orders".into()], ..Config::default() };
    admin.create_stream(config).await.unwrap();

    let trusting = |url: &str, file| builder(url).with_root_certificates(file).build().unwrap();
    publish(&trusting(&url, ours.certificate()), &orders(1, "orders")).await.remove(0).unwrap();
    // The server asks for it, whatever the URL says.
    let asked = format!("nats://localhost:{}", server.port());
    publish(&trusting(&asked, ours.certificate()), &orders(1, "orders")).await.remove(0).unwrap();
    // The certificate is for a name.
    let elsewhere = format!("tls://127.0.0.1:{}", server.port());
    let plain = shared::url(Kind::Nats).replace("nats://", "tls://");
    for refused in [
        trusting(&url, theirs.certificate()),
        transport(&url),
        transport(&asked),
        trusting(&elsewhere, ours.certificate()),
        trusting(&plain, ours.certificate()),
    ] {
        let answers = publish(&refused, &orders(1, "orders")).await;
        assert!(matches!(answers[0], Err(PublishError::Down { .. })), "{refused:?}: {answers:?}");
    }
}

/// It is not told of which message, so nobody can be sure.
#[tokio::test]
async fn what_is_not_permitted_is_told_with_the_words_of_the_server() {
    let (server, _folder) = configured(
        r#"authorization { default_permissions: { publish: { deny: "secret.>" } },
        users: [{ user: ann, password: pw }] }"#,
    )
    .await;
    let url = server.url().replace("nats://", "nats://ann:pw@");
    let transport = NatsTransport::builder(url).with_ack_timeout(Duration::from_secs(2)).build().unwrap();
    let answers = publish(&transport, &orders(1, "secret.plans")).await;
    let Err(PublishError::Unknown { source }) = &answers[0] else { panic!("{answers:?}") };
    assert!(source.to_string().contains("Permissions Violation"), "{source}");
}

#[test]
fn settings_that_make_no_sense_are_refused_in_words() {
    let refused = |builder: NatsBuilder| builder.build().unwrap_err().to_string();
    let url = "nats://127.0.0.1:4222";
    assert_eq!(
        refused(NatsTransport::builder(url).with_acks_pending(0)),
        "acks_pending: give at least 1, and at most 1,000,000"
    );
    assert_eq!(
        refused(NatsTransport::builder(url).with_ack_timeout(Duration::ZERO)),
        "ack_timeout: is zero; nothing would ever be accepted"
    );
    assert_eq!(
        refused(NatsTransport::builder(url).with_ack_timeout(Duration::MAX)),
        "ack_timeout: is longer than a day; give less"
    );
    assert_eq!(
        refused(NatsTransport::builder(url).with_stream("a.b")),
        "stream: \"a.b\" is not the name of a stream: no blanks, '.', '*', '>' or slashes"
    );
    assert!(refused(NatsTransport::builder(url).with_credentials("nothing")).starts_with("credentials: "));
    assert!(refused(NatsTransport::builder("nats://")).starts_with("url: "));
}
