//! Redis Streams pass the suite: on a server that all tests share, where streams are made by the first message, and on one that is
//! killed, where they must exist.

#![cfg(feature = "redis")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/redis.rs"]
mod server;
mod support;

use async_trait::async_trait;
use postrider_core::{PublishError, Transport};
use postrider_testkit::{
    Kind,
    broker::Redis,
    proxy::FaultProxy,
    shared,
    transport::{Received, TransportFeatures, TransportFixture},
};
use postrider_transports::redis::{RedisBuilder, RedisTransport};
use server::{entries, new_stream, run, undo};
use std::{sync::Arc, time::Duration};
use support::{Certificate, PATIENCE, order, orders, publish, soon, unused_port};
use tokio::sync::Mutex;

/// The least that a server can be told to refuse.
const LARGEST: &str = "1048576";
const TOO_LARGE: usize = 1_048_577;

struct RedisFixture {
    url: String,
    own: Option<Mutex<Redis>>,
}

async fn shared_server() -> RedisFixture {
    RedisFixture { url: shared::url(Kind::Redis), own: None }
}

async fn own_server() -> RedisFixture {
    let own = Redis::start_with(&["--proto-max-bulk-len", LARGEST]).await;
    RedisFixture { url: own.url().to_owned(), own: Some(Mutex::new(own)) }
}

mod on_a_shared_server {
    postrider_testkit::transport_suite!(super::shared_server);
}

mod on_a_server_that_crashes_with_streams_that_must_exist {
    postrider_testkit::transport_suite!(super::own_server);
}

fn builder(url: &str) -> RedisBuilder {
    RedisTransport::builder(url).with_answer_timeout(PATIENCE).with_connect_timeout(PATIENCE)
}

fn transport(url: &str) -> RedisTransport {
    builder(url).build().unwrap()
}

impl RedisFixture {
    fn transport_to(&self, url: &str) -> Arc<dyn Transport> {
        let builder = builder(url);
        let builder = if self.own.is_some() { builder.must_exist() } else { builder };
        Arc::new(builder.build().unwrap())
    }
}

#[async_trait]
impl TransportFixture for RedisFixture {
    fn features(&self) -> TransportFeatures {
        TransportFeatures {
            knows_destinations: self.own.is_some(),
            keeps_order: true,
            survives_restarts: self.own.is_some(),
            too_large: self.own.is_some().then_some(TOO_LARGE),
            carries_key: true,
        }
    }

    async fn transport(&self) -> Arc<dyn Transport> {
        self.transport_to(&self.url)
    }

    async fn nobody_there(&self) -> Arc<dyn Transport> {
        Arc::new(transport(&format!("redis://127.0.0.1:{}", unused_port())))
    }

    async fn through_proxy(&self) -> Option<(FaultProxy, Arc<dyn Transport>)> {
        let (proxy, url) = FaultProxy::before_url(&self.url).await;
        Some((proxy, self.transport_to(&url)))
    }

    async fn destination(&self) -> String {
        let stream = new_stream();
        if self.own.is_some() {
            run::<()>(&self.url, &format!("XGROUP CREATE {stream} readers $ MKSTREAM")).await;
        }
        stream
    }

    fn missing_destination(&self) -> String {
        "missing".to_owned()
    }

    async fn received(&self, destination: &str, count: usize) -> Vec<Received> {
        loop {
            let entries = entries(&self.url, destination).await;
            if entries.len() >= count {
                return entries.into_iter().map(undo).collect();
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
async fn one_bad_entry_is_told_and_its_neighbours_arrive() {
    let url = shared::url(Kind::Redis);
    let (good, list) = (new_stream(), new_stream());
    run::<i64>(&url, &format!("LPUSH {list} a")).await;
    let batch = [order(1, &good), order(2, &list), order(3, &good)];
    let answers = publish(&transport(&url), &batch).await;
    assert!(answers[0].is_ok() && answers[2].is_ok(), "{answers:?}");
    assert!(matches!(answers[1], Err(PublishError::Reject { .. })), "{answers:?}");
    assert_eq!(entries(&url, &good).await.len(), 2);
}

#[tokio::test]
async fn a_stream_is_made_by_the_first_message_unless_it_must_exist() {
    let url = shared::url(Kind::Redis);
    let stream = new_stream();
    let strict = builder(&url).must_exist().build().unwrap();
    let answers = publish(&strict, &orders(1, &stream)).await;
    let Err(PublishError::Retry { source, .. }) = &answers[0] else { panic!("{answers:?}") };
    assert!(source.to_string().contains(&format!("XGROUP CREATE {stream} readers $ MKSTREAM")), "{source}");
    publish(&transport(&url), &orders(1, &stream)).await.remove(0).unwrap();
    publish(&strict, &orders(1, &stream)).await.remove(0).unwrap();
}

#[tokio::test]
async fn a_full_server_refuses_for_now() {
    let server = Redis::start_with(&["--maxmemory-policy", "noeviction"]).await;
    let (transport, batch) = (transport(server.url()), orders(3, "orders"));
    run::<()>(server.url(), "CONFIG SET maxmemory 1").await;
    let answers = publish(&transport, &batch).await;
    assert!(answers.iter().all(|answer| matches!(answer, Err(PublishError::Retry { .. }))), "{answers:?}");
    run::<()>(server.url(), "CONFIG SET maxmemory 0").await;
    for answer in publish(&transport, &batch).await {
        answer.unwrap();
    }
}

/// Nothing is trimmed, whatever the server's settings for lists and streams are.
#[tokio::test]
async fn everything_that_was_accepted_stays() {
    let url = shared::url(Kind::Redis);
    let stream = new_stream();
    let transport = transport(&url);
    for _ in 0..10 {
        assert!(publish(&transport, &orders(500, &stream)).await.iter().all(Result::is_ok));
    }
    assert_eq!(run::<usize>(&url, &format!("XLEN {stream}")).await, 5_000);
}

async fn with_replica() -> (Redis, Redis) {
    let primary = Redis::start().await;
    let port = primary.port().to_string();
    let replica = Redis::start_with(&["--replicaof", "127.0.0.1", &port]).await;
    soon(async {
        while !run::<String>(primary.url(), "INFO replication").await.contains("state=online") {
            tokio::task::yield_now().await;
        }
    })
    .await;
    (primary, replica)
}

#[tokio::test]
async fn a_replica_is_down_until_it_is_the_primary() {
    let (primary, replica) = with_replica().await;
    let (transport, batch) = (transport(replica.url()), orders(2, "orders"));
    for answer in publish(&transport, &batch).await {
        assert!(matches!(answer, Err(PublishError::Down { .. })), "{answer:?}");
    }
    // It may be written to, but its primary is gone, and it may not do anything without.
    drop(primary);
    soon(async {
        while !run::<String>(replica.url(), "INFO replication").await.contains("master_link_status:down") {
            tokio::task::yield_now().await;
        }
    })
    .await;
    run::<()>(replica.url(), "CONFIG SET replica-serve-stale-data no").await;
    run::<()>(replica.url(), "CONFIG SET replica-read-only no").await;
    for answer in publish(&transport, &batch).await {
        let Err(PublishError::Down { source }) = answer else { panic!("{answer:?}") };
        assert!(source.to_string().starts_with("MASTERDOWN"), "{source}");
    }
    run::<()>(replica.url(), "REPLICAOF NO ONE").await;
    for answer in publish(&transport, &batch).await {
        answer.unwrap();
    }
}

/// A node that has no part in any cluster yet.
async fn node() -> Redis {
    // Unless told otherwise, it is so far beyond the other port that there may be none.
    Redis::start_with(&["--cluster-enabled", "yes", "--cluster-port", &unused_port().to_string()]).await
}

#[tokio::test]
async fn a_node_without_its_cluster_is_down_and_another_nodes_stream_is_refused() {
    let (first, second) = (node().await, node().await);
    let transport = transport(second.url());
    let answers = publish(&transport, &orders(1, "orders")).await;
    assert!(matches!(answers[0], Err(PublishError::Down { .. })), "{answers:?}");

    run::<()>(first.url(), "CLUSTER ADDSLOTSRANGE 0 16383").await;
    let (_, bus): (String, String) = run(first.url(), "CONFIG GET cluster-port").await;
    run::<()>(second.url(), &format!("CLUSTER MEET 127.0.0.1 {} {bus}", first.port())).await;
    let answer = soon(async {
        loop {
            match publish(&transport, &orders(1, "orders")).await.remove(0) {
                Err(PublishError::Retry { source, .. }) => return source.to_string(),
                Err(PublishError::Down { .. }) => tokio::task::yield_now().await,
                other => panic!("{other:?}"),
            }
        }
    })
    .await;
    assert!(answer.starts_with("MOVED"), "{answer}");
}

#[tokio::test]
async fn replicas_are_counted_where_that_is_asked_for() {
    let (primary, replica) = with_replica().await;
    let with = |count| builder(primary.url()).with_replicas(count, Duration::from_secs(1)).build().unwrap();
    let (one, two) = (with(1), with(2));
    soon(async {
        while one.publish(&orders(3, "orders")).await.iter().any(Result::is_err) {
            tokio::task::yield_now().await;
        }
    })
    .await;
    for answer in publish(&two, &orders(3, "orders")).await {
        assert!(matches!(answer, Err(PublishError::Unknown { .. })), "{answer:?}");
    }
    drop(replica);
    // What is refused is refused, whoever has the others.
    run::<i64>(primary.url(), "LPUSH list a").await;
    let answers = publish(&one, &[order(1, "orders"), order(2, "list")]).await;
    assert!(matches!(answers[0], Err(PublishError::Unknown { .. })), "{answers:?}");
    assert!(matches!(answers[1], Err(PublishError::Reject { .. })), "{answers:?}");
}

#[tokio::test]
async fn a_password_is_used_and_never_shown() {
    let server = Redis::start().await;
    run::<()>(server.url(), "ACL SETUSER ann on >s3cret/ ~* +@all").await;
    run::<()>(server.url(), "ACL SETUSER default off").await;
    let at = format!("127.0.0.1:{}", server.port());
    let good = transport(&format!("redis://ann:s3cret%2F@{at}"));
    publish(&good, &orders(1, "orders")).await.remove(0).unwrap();
    let bad = transport(&format!("redis://ann:wr0ng@{at}"));
    let answers = publish(&bad, &orders(1, "orders")).await;
    assert!(matches!(answers[0], Err(PublishError::Down { .. })), "{answers:?}");
    assert!(!format!("{answers:?} {bad:?}").contains("wr0ng"), "{answers:?} {bad:?}");
    let error = RedisTransport::connect("http://ann:wr0ng@host").unwrap_err().to_string();
    assert!(error.starts_with("url: ") && !error.contains("wr0ng"), "{error}");
    // Let it be stopped: the harness knows no password.
    let admin = format!("redis://ann:s3cret%2F@{at}");
    run::<()>(&admin, "ACL SETUSER default on nopass ~* +@all").await;
}

#[tokio::test]
async fn tls_is_spoken_with_those_who_are_trusted_only() {
    let (ours, theirs) = (Certificate::new(), Certificate::new());
    let (certificate, key, port) = (ours.certificate(), ours.key(), unused_port());
    let server = Redis::start_with(&[
        "--tls-port",
        &port.to_string(),
        "--tls-cert-file",
        certificate.to_str().unwrap(),
        "--tls-key-file",
        key.to_str().unwrap(),
        "--tls-ca-cert-file",
        certificate.to_str().unwrap(),
        "--tls-auth-clients",
        "no",
    ])
    .await;
    let url = format!("rediss://localhost:{port}");
    let trusting = |url: &str, file| builder(url).with_root_certificates(file);
    let right = trusting(&url, ours.certificate()).build().unwrap();
    publish(&right, &orders(1, "orders")).await.remove(0).unwrap();
    let plain = format!("rediss://localhost:{}", server.port());
    for refused in [
        trusting(&url, theirs.certificate()),
        builder(&url),
        // The certificate is for a name.
        trusting(&format!("rediss://127.0.0.1:{port}"), ours.certificate()),
        // It waits for more of what it does not understand.
        trusting(&plain, ours.certificate()).with_connect_timeout(Duration::from_secs(1)),
    ] {
        let refused = refused.build().unwrap();
        let answers = publish(&refused, &orders(1, "orders")).await;
        assert!(matches!(answers[0], Err(PublishError::Down { .. })), "{refused:?}: {answers:?}");
    }
}

#[test]
fn settings_that_make_no_sense_are_refused_in_words() {
    let refused = |builder: RedisBuilder| builder.build().unwrap_err().to_string();
    let url = "redis://127.0.0.1:6379";
    assert_eq!(
        refused(RedisTransport::builder("127.0.0.1")),
        "url: write redis://user:password@host:6379/0, or rediss:// with TLS"
    );
    assert_eq!(
        refused(RedisTransport::builder(url).with_answer_timeout(Duration::ZERO)),
        "answer_timeout: is zero; nothing would ever be accepted"
    );
    assert!(refused(RedisTransport::builder(url).with_replicas(1, Duration::ZERO)).starts_with("replicas: "));
    assert!(refused(RedisTransport::builder(url).with_root_certificates("/nowhere")).starts_with("root_"));
}
