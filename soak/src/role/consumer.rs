//! Receives messages from the broker. The effect is a row that commits with the deduplication record.

use super::{CONSUMER, DRAIN_TIMEOUT, LEASE, ProcessArgs, STREAM, SUBJECT, retry};
use crate::{database::Database, task::Task};
use anyhow::Result;
use postrider_engine::{Consumer, Context, Stopped, Tx};
use postrider_transports::nats::NatsSource;
use sqlx::{Postgres, Transaction};
use std::time::Duration;

/// The stream is emptied after every round.
const REDELIVERY_WINDOW: Duration = Duration::from_secs(3600);

pub(super) async fn run(database: &Database, args: &ProcessArgs) -> Result<Stopped> {
    let source = NatsSource::builder(args.broker.as_str(), STREAM, CONSUMER)
        .with_created_consumer(SUBJECT, LEASE)
        .build()?;
    let transactions = database.store.transactions(database.app.clone());
    let handler = |task: Task, mut tx: Tx<Transaction<'static, Postgres>>, context: Context| async move {
        sqlx::query("insert into effect (id) values ($1)")
            .bind(context.id().as_uuid())
            .persistent(false)
            .execute(&mut **tx)
            .await?;
        task.result(context.attempt())
    };
    let consumer = Consumer::builder("soak", source, transactions)
        .on(handler)
        .concurrency(2)
        .retry(retry())
        .redelivery_window(REDELIVERY_WINDOW)
        .restart_backoff_max(Duration::from_millis(500));
    Ok(consumer.build()?.run_until_signal(DRAIN_TIMEOUT).await?)
}
