//! The source of SQS passes the suite, on standard and on FIFO queues.
//!
//! The server is moto, which keeps messages in memory and loses them in a crash.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/sqs_source.rs"]
mod queues;
#[path = "support/sqs.rs"]
mod server;
mod support;

use queues::SqsFixture;

async fn standard() -> SqsFixture {
    queues::fixture("").await
}

async fn fifo() -> SqsFixture {
    queues::fixture(".fifo").await
}

mod on_queues {
    postrider_testkit::source_suite!(super::standard, unordered);
}

mod on_fifo_queues {
    postrider_testkit::source_suite!(super::fifo);
}
