//! The broker examples on NATS: with a stream, and without.

#![cfg(feature = "nats")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use async_nats::jetstream::{
    self,
    stream::{Config, DiscardPolicy},
};
use postrider_testkit::{Kind, shared};
use support::{run, run_as_printed};

#[tokio::test]
async fn relay_publishes_committed_messages_and_consumer_processes_them() {
    let stream = format!("T{}", uuid::Uuid::now_v7().simple());
    let url = shared::url(Kind::Nats);
    let context = jetstream::new(async_nats::connect(&url).await.unwrap());
    let config = Config {
        name: stream.clone(),
        subjects: vec![format!("{stream}.>")],
        discard: DiscardPolicy::New,
        ..Config::default()
    };
    context.create_stream(config).await.unwrap();
    assert_eq!(
        run_as_printed("nats", "relay_broker", &url, &format!("{stream}.placed")).await,
        format!(
            "note single_replica: nats stream edit {stream} --replicas=3 --force\n\
             note sync_interval: set jetstream {{ sync_interval: always }} in the configuration of the servers\n\
             2 published, 0 to be retried, 0 dead\n"
        )
    );
    let printed = run_as_printed("nats", "consume_broker", &url, &stream).await;
    assert!(printed.ends_with("2 processed, 0 duplicates\n"), "{printed}");
}

#[tokio::test]
async fn relay_without_a_stream_reports_the_problem_and_publishes_nothing() {
    let printed = run("relay_broker", &["nats", &shared::url(Kind::Nats), "nobody.holds.this"]).await;
    assert!(printed.starts_with("problem no_stream: nats stream add NOBODY --subjects"), "{printed}");
    assert!(printed.ends_with("0 published, 2 to be retried, 0 dead\n"), "{printed}");
}
