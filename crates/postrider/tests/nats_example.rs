//! The example does what it says, with a stream and without.

#![cfg(feature = "nats")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "../../../examples/consume_nats.rs"]
mod consume_nats;
#[path = "../../../examples/relay_nats.rs"]
mod relay_nats;

use async_nats::jetstream::{
    self,
    stream::{Config, DiscardPolicy},
};
use postrider_testkit::{Kind, shared};

async fn told(prefix: &str) -> String {
    let mut out = Vec::new();
    relay_nats::run(&shared::url(Kind::Nats), prefix, &mut out).await.unwrap();
    String::from_utf8(out).unwrap()
}

#[tokio::test]
async fn the_relay_publishes_what_was_committed_and_the_consumer_receives_it() {
    let stream = format!("T{}", uuid::Uuid::now_v7().simple());
    let context = jetstream::new(async_nats::connect(shared::url(Kind::Nats)).await.unwrap());
    let config = Config {
        name: stream.clone(),
        subjects: vec![format!("{stream}.>")],
        discard: DiscardPolicy::New,
        ..Config::default()
    };
    let mut held = context.create_stream(config).await.unwrap();
    assert_eq!(
        told(&stream).await,
        format!(
            "note single_replica: nats stream edit {stream} --replicas=3 --force\n\
             note sync_interval: set jetstream {{ sync_interval: always }} in the configuration of the servers\n\
             2 published, 0 to be tried again\n"
        )
    );
    assert_eq!(held.info().await.unwrap().state.messages, 2);

    let mut out = Vec::new();
    consume_nats::run(&shared::url(Kind::Nats), &stream, &format!("{stream}.>"), &mut out).await.unwrap();
    let out = String::from_utf8(out).unwrap();
    assert!(out.ends_with("2 processed, 0 duplicates, 0 parked, 0 failed\n"), "{out}");
}

#[tokio::test]
async fn without_a_stream_it_says_so_and_publishes_nothing() {
    let told = told("nobody.holds.this").await;
    assert!(told.starts_with("problem no_stream: nats stream add NOBODY --subjects"), "{told}");
    assert!(told.ends_with("0 published, 2 to be tried again\n"), "{told}");
}
