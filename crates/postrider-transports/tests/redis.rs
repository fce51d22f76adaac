//! The transport suite on Redis Streams: on a shared server, where the first message creates a stream, and on one that is killed, where
//! streams must exist; and tests of its own features.

#![cfg(feature = "redis")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/redis.rs"]
mod server;
mod support;

use async_trait::async_trait;
use postrider_core::{ClientOptions, Pem, PublishError, Transport};
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
use support::{Certificate, PATIENCE, client, order, orders, publish, soon, unused_port};
use tokio::sync::Mutex;

/// The smallest limit that a server accepts.
const MAX_VALUE_BYTES: &str = "1048576";
const TOO_LARGE: usize = 1_048_577;

struct RedisFixture {
    url: String,
    own: Option<Mutex<Redis>>,
}

async fn shared_server() -> RedisFixture {
    RedisFixture { url: shared::url(Kind::Redis), own: None }
}

async fn own_server() -> RedisFixture {
    let own = Redis::start_with(&["--proto-max-bulk-len", MAX_VALUE_BYTES]).await;
    RedisFixture { url: own.url().to_owned(), own: Some(Mutex::new(own)) }
}

mod shared_server_suite {
    postrider_testkit::transport_suite!(super::shared_server);
}

mod crashing_server_with_must_exist_suite {
    postrider_testkit::transport_suite!(super::own_server);
}

fn builder(url: &str) -> RedisBuilder {
    RedisTransport::builder(client(url, PATIENCE))
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
async fn rejected_entry_does_not_affect_its_neighbours() {
    let url = shared::url(Kind::Redis);
    let (good, list) = (new_stream(), new_stream());
    run::<i64>(&url, &format!("LPUSH {list} a")).await;
    let batch = [order(1, &good), order(2, &list), order(3, &good)];
    let results = publish(&transport(&url), &batch).await;
    assert!(results[0].is_ok() && results[2].is_ok(), "{results:?}");
    assert!(matches!(results[1], Err(PublishError::Reject { .. })), "{results:?}");
    assert_eq!(entries(&url, &good).await.len(), 2);
}

#[tokio::test]
async fn first_message_creates_the_stream_unless_it_must_exist() {
    let url = shared::url(Kind::Redis);
    let stream = new_stream();
    let strict = builder(&url).must_exist().build().unwrap();
    let results = publish(&strict, &orders(1, &stream)).await;
    let Err(PublishError::AddressUnavailable { source }) = &results[0] else { panic!("{results:?}") };
    assert!(source.to_string().contains(&format!("XGROUP CREATE {stream} readers $ MKSTREAM")), "{source}");
    publish(&transport(&url), &orders(1, &stream)).await.remove(0).unwrap();
    publish(&strict, &orders(1, &stream)).await.remove(0).unwrap();
}

#[tokio::test]
async fn full_server_is_unavailable() {
    let server = Redis::start_with(&["--maxmemory-policy", "noeviction"]).await;
    let (transport, batch) = (transport(server.url()), orders(3, "orders"));
    run::<()>(server.url(), "CONFIG SET maxmemory 1").await;
    let results = publish(&transport, &batch).await;
    assert!(
        results.iter().all(|result| matches!(result, Err(PublishError::Unavailable { .. }))),
        "{results:?}"
    );
    run::<()>(server.url(), "CONFIG SET maxmemory 0").await;
    for result in publish(&transport, &batch).await {
        result.unwrap();
    }
}

/// Streams are not trimmed, whatever the server's settings for lists and streams are.
#[tokio::test]
async fn accepted_entries_are_never_trimmed() {
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
async fn replica_is_unavailable_until_it_is_promoted() {
    let (primary, replica) = with_replica().await;
    let (transport, batch) = (transport(replica.url()), orders(2, "orders"));
    for result in publish(&transport, &batch).await {
        assert!(matches!(result, Err(PublishError::Unavailable { .. })), "{result:?}");
    }
    // The replica is writable, but its primary is gone, and it may not serve stale data.
    drop(primary);
    soon(async {
        while !run::<String>(replica.url(), "INFO replication").await.contains("master_link_status:down") {
            tokio::task::yield_now().await;
        }
    })
    .await;
    run::<()>(replica.url(), "CONFIG SET replica-serve-stale-data no").await;
    run::<()>(replica.url(), "CONFIG SET replica-read-only no").await;
    for result in publish(&transport, &batch).await {
        let Err(PublishError::Unavailable { source }) = result else { panic!("{result:?}") };
        assert!(source.to_string().starts_with("MASTERDOWN"), "{source}");
    }
    run::<()>(replica.url(), "REPLICAOF NO ONE").await;
    for result in publish(&transport, &batch).await {
        result.unwrap();
    }
}

/// A node without a cluster.
async fn node() -> Redis {
    // The default cluster port is so far above the other port that it may not exist.
    Redis::start_with(&["--cluster-enabled", "yes", "--cluster-port", &unused_port().to_string()]).await
}

#[tokio::test]
async fn cluster_down_and_moved_are_unavailable() {
    let (first, second) = (node().await, node().await);
    let transport = transport(second.url());
    let results = publish(&transport, &orders(1, "orders")).await;
    assert!(matches!(results[0], Err(PublishError::Unavailable { .. })), "{results:?}");

    run::<()>(first.url(), "CLUSTER ADDSLOTSRANGE 0 16383").await;
    let (_, bus): (String, String) = run(first.url(), "CONFIG GET cluster-port").await;
    run::<()>(second.url(), &format!("CLUSTER MEET 127.0.0.1 {} {bus}", first.port())).await;
    let result = soon(async {
        loop {
            match publish(&transport, &orders(1, "orders")).await.remove(0) {
                Err(PublishError::AddressUnavailable { source }) => return source.to_string(),
                Err(PublishError::Unavailable { .. }) => tokio::task::yield_now().await,
                other => panic!("{other:?}"),
            }
        }
    })
    .await;
    assert!(result.starts_with("MOVED"), "{result}");
}

#[tokio::test]
async fn with_replicas_requires_replicated_entries() {
    let (primary, replica) = with_replica().await;
    let with = |count| builder(primary.url()).with_replicas(count, Duration::from_secs(1)).build().unwrap();
    let (one, two) = (with(1), with(2));
    soon(async {
        while one.publish(&orders(3, "orders")).await.iter().any(Result::is_err) {
            tokio::task::yield_now().await;
        }
    })
    .await;
    for result in publish(&two, &orders(3, "orders")).await {
        assert!(matches!(result, Err(PublishError::Unknown { .. })), "{result:?}");
    }
    drop(replica);
    // A rejected entry stays rejected, whatever the replicas have.
    run::<i64>(primary.url(), "LPUSH list a").await;
    let results = publish(&one, &[order(1, "orders"), order(2, "list")]).await;
    assert!(matches!(results[0], Err(PublishError::Unknown { .. })), "{results:?}");
    assert!(matches!(results[1], Err(PublishError::Reject { .. })), "{results:?}");
}

#[tokio::test]
async fn password_is_used_and_never_shown() {
    let server = Redis::start().await;
    run::<()>(server.url(), "ACL SETUSER ann on >s3cret/ ~* +@all").await;
    run::<()>(server.url(), "ACL SETUSER default off").await;
    let at = format!("127.0.0.1:{}", server.port());
    let good = transport(&format!("redis://ann:s3cret%2F@{at}"));
    publish(&good, &orders(1, "orders")).await.remove(0).unwrap();
    let bad = transport(&format!("redis://ann:wr0ng@{at}"));
    let results = publish(&bad, &orders(1, "orders")).await;
    assert!(matches!(results[0], Err(PublishError::Unavailable { .. })), "{results:?}");
    assert!(!format!("{results:?} {bad:?}").contains("wr0ng"), "{results:?} {bad:?}");
    let error = RedisTransport::connect("http://ann:wr0ng@host").unwrap_err().to_string();
    assert!(error.starts_with("url: ") && !error.contains("wr0ng"), "{error}");
    // The harness has no password to stop the server.
    let admin = format!("redis://ann:s3cret%2F@{at}");
    run::<()>(&admin, "ACL SETUSER default on nopass ~* +@all").await;
}

#[tokio::test]
async fn tls_accepts_only_certificates_of_the_ca_bundle() {
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
    let with_ca_bundle = |url: &str, file| client(url, PATIENCE).with_ca_bundle(Pem::File(file));
    let right = RedisTransport::connect(with_ca_bundle(&url, ours.certificate())).unwrap();
    publish(&right, &orders(1, "orders")).await.remove(0).unwrap();
    let plain = format!("rediss://localhost:{}", server.port());
    for untrusted in [
        with_ca_bundle(&url, theirs.certificate()),
        client(&url, PATIENCE),
        // The certificate is for another host name.
        with_ca_bundle(&format!("rediss://127.0.0.1:{port}"), ours.certificate()),
        // The plain port waits for more input.
        with_ca_bundle(&plain, ours.certificate()).with_connect_timeout(Duration::from_secs(1)),
    ] {
        let untrusted = RedisTransport::connect(untrusted).unwrap();
        let results = publish(&untrusted, &orders(1, "orders")).await;
        assert!(matches!(results[0], Err(PublishError::Unavailable { .. })), "{untrusted:?}: {results:?}");
    }
}

#[test]
fn invalid_settings_are_rejected_with_the_reason() {
    let error = |builder: RedisBuilder| builder.build().unwrap_err().to_string();
    let url = "redis://127.0.0.1:6379";
    assert_eq!(
        error(RedisTransport::builder("127.0.0.1")),
        "url: is not a Redis URL; write redis://user:password@host:6379/0, or rediss:// for TLS"
    );
    assert_eq!(
        error(RedisTransport::builder(ClientOptions::new(url).with_request_timeout(Duration::ZERO))),
        "request_timeout: is zero; nothing would ever be accepted"
    );
    assert!(error(RedisTransport::builder(url).with_replicas(1, Duration::ZERO)).starts_with("replicas: "));
    let bundle = |url: &str| ClientOptions::new(url).with_ca_bundle(Pem::file("/nowhere"));
    assert!(error(RedisTransport::builder(bundle("rediss://host"))).starts_with("ca_bundle: "));
    assert_eq!(
        error(RedisTransport::builder(bundle(url))),
        "url: has no TLS, but certificates are configured; write rediss://"
    );
}
