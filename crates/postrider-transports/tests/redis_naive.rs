//! Controls: naive ways of publishing to Redis, and the messages that they lose and this transport does not.

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

fn accepted(results: &[Result<Receipt, PublishError>]) -> Vec<bool> {
    results.iter().map(Result::is_ok).collect()
}

/// Three messages; the one in the middle goes to a key of another type.
async fn mixed(url: &str) -> (String, Vec<Outgoing>) {
    let (stream, list) = (new_stream(), new_stream());
    run::<i64>(url, &format!("LPUSH {list} a")).await;
    let batch = vec![order(1, &stream), order(2, &list), order(3, &stream)];
    (stream, batch)
}

/// The result of the pipeline is taken for that of each entry: a refused entry is lost.
#[tokio::test]
async fn successful_pipeline_hides_a_refused_entry() {
    let url = shared::url(Kind::Redis);
    let (stream, batch) = mixed(&url).await;
    let sent: Result<Vec<Value>, _> =
        soon(pipeline(&batch).ignore_errors().query_async(&mut connection(&url).await)).await;
    assert!(sent.is_ok(), "the naive publisher settles all three");
    assert_eq!(entries(&url, &stream).await.len(), 2, "and one is lost");
    let results = publish(&RedisTransport::connect(&url).unwrap(), &batch).await;
    assert_eq!(accepted(&results), [true, false, true]);
}

/// The other way round: a refused entry makes the publisher send all of them again, without end.
#[tokio::test]
async fn failed_pipeline_hides_accepted_entries() {
    let url = shared::url(Kind::Redis);
    let (stream, batch) = mixed(&url).await;
    for _ in 0..3 {
        let sent: Result<(), _> = soon(pipeline(&batch).query_async(&mut connection(&url).await)).await;
        assert!(sent.is_err(), "the naive publisher sends all three again");
    }
    assert_eq!(entries(&url, &stream).await.len(), 6, "the two good entries are stored three times");
}

/// The same with a server that is full from the second message on.
#[tokio::test]
async fn successful_pipeline_hides_entries_refused_by_a_full_server() {
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
    assert!(sent.is_ok(), "the naive publisher settles all three");
    assert_eq!(run::<usize>(url, "XLEN orders").await, 1, "and two are lost");
    let results = publish(&RedisTransport::connect(url).unwrap(), &batch).await;
    assert_eq!(accepted(&results), [false, false, false]);
}

/// `WAIT` does not fail when no replica has the entry: it returns how many have it.
#[tokio::test]
async fn ignored_wait_reply_hides_missing_replicas() {
    let server = Redis::start().await;
    let mut naive = pipeline(&orders(1, "orders"));
    naive.cmd("WAIT").arg(1).arg(10).ignore();
    let sent: Result<(String,), _> = soon(naive.query_async(&mut connection(server.url()).await)).await;
    assert!(sent.is_ok(), "the naive publisher settles a message that no replica has");
    let careful = RedisTransport::builder(server.url()).with_replicas(1, Duration::from_millis(10));
    let results = publish(&careful.build().unwrap(), &orders(1, "orders")).await;
    assert!(matches!(results[0], Err(PublishError::Unknown { .. })), "{results:?}");
}
