//! How others publish to Redis, and what they lose where this transport does not.

#![cfg(feature = "redis")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/redis.rs"]
mod server;
mod support;

use postrider_core::{Outgoing, PublishError, Receipt};
use postrider_testkit::{Kind, broker::Redis, shared};
use postrider_transports::redis::RedisTransport;
use redis::{Pipeline, Value};
use server::{connection, entries, new_stream, run};
use std::time::Duration;
use support::{order, orders, publish, soon};

fn pipeline(batch: &[Outgoing]) -> Pipeline {
    let mut pipeline = redis::pipe();
    for outgoing in batch {
        pipeline.cmd("XADD").arg(&outgoing.destination).arg("*").arg("body").arg(&outgoing.body[..]);
    }
    pipeline
}

fn accepted(answers: &[Result<Receipt, PublishError>]) -> Vec<bool> {
    answers.iter().map(Result::is_ok).collect()
}

/// Three to a stream, and in the middle one to something else.
async fn mixed(url: &str) -> (String, Vec<Outgoing>) {
    let (stream, list) = (new_stream(), new_stream());
    run::<i64>(url, &format!("LPUSH {list} a")).await;
    let batch = vec![order(1, &stream), order(2, &list), order(3, &stream)];
    (stream, batch)
}

/// The answer of the whole is taken for that of each: one that was refused is lost.
#[tokio::test]
async fn a_pipeline_that_went_well_hides_what_was_refused() {
    let url = shared::url(Kind::Redis);
    let (stream, batch) = mixed(&url).await;
    let sent: Result<Vec<Value>, _> =
        soon(pipeline(&batch).ignore_errors().query_async(&mut connection(&url).await)).await;
    assert!(sent.is_ok(), "the naive one settles all three");
    assert_eq!(entries(&url, &stream).await.len(), 2, "and one is nowhere");
    let answers = publish(&RedisTransport::connect(&url).unwrap(), &batch).await;
    assert_eq!(accepted(&answers), [true, false, true]);
}

/// The other way round: one that was refused makes all of them come again, for ever.
#[tokio::test]
async fn a_pipeline_that_failed_hides_what_was_accepted() {
    let url = shared::url(Kind::Redis);
    let (stream, batch) = mixed(&url).await;
    for _ in 0..3 {
        let sent: Result<(), _> = soon(pipeline(&batch).query_async(&mut connection(&url).await)).await;
        assert!(sent.is_err(), "the naive one sends all three again");
    }
    assert_eq!(entries(&url, &stream).await.len(), 6, "the two good ones are there three times");
}

/// The same where the server is full from the second message on.
#[tokio::test]
async fn a_pipeline_that_went_well_hides_what_a_full_server_refused() {
    let server = Redis::start().await;
    let (url, batch) = (server.url(), orders(3, "orders"));
    let mut filling = redis::pipe();
    filling.ignore_errors();
    for (number, command) in pipeline(&batch).cmd_iter().enumerate() {
        if number == 1 {
            filling.cmd("CONFIG").arg("SET").arg("maxmemory").arg(1);
        }
        filling.add_command(command.clone());
    }
    let sent: Result<Vec<Value>, _> = soon(filling.query_async(&mut connection(url).await)).await;
    assert!(sent.is_ok(), "the naive one settles all three");
    assert_eq!(run::<usize>(url, "XLEN orders").await, 1, "and two are nowhere");
    let answers = publish(&RedisTransport::connect(url).unwrap(), &batch).await;
    assert_eq!(accepted(&answers), [false, false, false]);
}

/// `WAIT` does not fail when nobody came: it says how many did.
#[tokio::test]
async fn a_wait_that_is_not_read_counts_what_no_replica_has() {
    let server = Redis::start().await;
    let mut naive = pipeline(&orders(1, "orders"));
    naive.cmd("WAIT").arg(1).arg(10).ignore();
    let sent: Result<(String,), _> = soon(naive.query_async(&mut connection(server.url()).await)).await;
    assert!(sent.is_ok(), "the naive one settles what no replica has");
    let careful = RedisTransport::builder(server.url()).with_replicas(1, Duration::from_millis(10));
    let answers = publish(&careful.build().unwrap(), &orders(1, "orders")).await;
    assert!(matches!(answers[0], Err(PublishError::Unknown { .. })), "{answers:?}");
}
