//! A consumer of SQS passes the suite, on standard and on FIFO queues.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/consuming.rs"]
mod consuming;
#[path = "support/sqs_source.rs"]
mod queues;
#[path = "support/sqs.rs"]
mod server;
mod support;

use consuming::OnMemoryStore;
use queues::SqsFixture;

mod on_queues {
    use super::*;
    async fn standard() -> OnMemoryStore<SqsFixture> {
        OnMemoryStore::new(queues::fixture("").await).await
    }
    postrider_testkit::consumer_suite!(standard, unordered);
}

mod on_fifo_queues {
    use super::*;
    async fn fifo() -> OnMemoryStore<SqsFixture> {
        OnMemoryStore::new(queues::fixture(".fifo").await).await
    }
    postrider_testkit::consumer_suite!(fifo);
}
