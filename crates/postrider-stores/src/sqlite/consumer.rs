//! The consumer's side: dead-lettering received messages, and counting deliveries for brokers that do not count.

use super::{
    SqliteOutbox, SqliteTransactions, drivers::DriverRow, error::store_error, row::body,
    statement_batch::query_each,
};
use crate::arrivals::Arrivals;
use postrider_core::{
    Arrival, ConsumerName, DeadLetter, Error, Limits, Message, Outbox, StageOutcome, TenantId,
};
use sqlx::{Sqlite, Transaction};
use std::collections::HashMap;
use uuid::Uuid;

const COUNT: &str = "insert into {inbox_count} (consumer, tenant, message_id, deliveries, counted_at) values (?, ?, ?, max(?, 0), {now}) \
    on conflict (consumer, tenant, message_id) do update set deliveries = max(deliveries + ?, 0), counted_at = excluded.counted_at \
    returning tenant, message_id, deliveries";

const UNCOUNT: &str = "delete from {inbox_count} where consumer = ? and tenant = ? and message_id = ?";

type Tx = Transaction<'static, Sqlite>;

impl SqliteTransactions {
    pub(super) async fn dead_letter_all(&self, tx: &mut Tx, dead_letter: &[DeadLetter]) -> Result<(), Error> {
        // The sender is another program: our own size limits must not lose its message.
        let limits = Limits::default().with_payload_bytes(usize::MAX).with_batch_bytes(usize::MAX);
        let names = &self.store.inner.names;
        let outbox = SqliteOutbox::with_limits(names.clone(), limits);
        let messages: Vec<Message> =
            dead_letter.iter().map(|dead_letter| dead_letter.message.clone()).collect();
        let staged = outbox.stage_all(tx, &messages).await?;
        let new = dead_letter
            .iter()
            .zip(staged.outcomes())
            .filter(|(_, (_, outcome))| *outcome == StageOutcome::New);
        // The messages staged above, in this transaction, become dead letters.
        let new_letters: Vec<_> = new.map(|(dead_letter, (id, _))| (dead_letter, id.as_uuid())).collect();
        let condition = sql!("queue = (select q.id from {queue} q where q.name = ?) and message_id = ?");
        let update = sql!("update {ready} set deliveries = ?, last_error = ? where {condition}", condition);
        query_each(&mut **tx, names, &update, &new_letters, |statement, (dead_letter, id)| {
            let statement = statement.bind(dead_letter.deliveries).bind(dead_letter.error.clone());
            statement.bind(dead_letter.message.queue().as_str().to_owned()).bind(*id)
        })
        .await?;
        let insert = sql!(
            "insert into {dead} (id, due_at, failed_at, reason, {body}) select id, due_at, {now}, ?, {body} from {ready} where {condition}",
            body = body(),
            condition
        );
        query_each(&mut **tx, names, &insert, &new_letters, |statement, (dead_letter, id)| {
            let statement = statement.bind(dead_letter.reason.as_str());
            statement.bind(dead_letter.message.queue().as_str().to_owned()).bind(*id)
        })
        .await?;
        query_each(
            &mut **tx,
            names,
            &sql!("delete from {ready} where {condition}", condition),
            &new_letters,
            |statement, (dead_letter, id)| {
                statement.bind(dead_letter.message.queue().as_str().to_owned()).bind(*id)
            },
        )
        .await?;
        Ok(())
    }

    pub(super) async fn count_all(
        &self,
        consumer: &ConsumerName,
        batch: &[Arrival],
        by: i32,
    ) -> Result<Vec<u32>, Error> {
        if batch.is_empty() {
            return Ok(Vec::new());
        }
        let arrivals = Arrivals::of(batch);
        let keys: Vec<_> = arrivals.tenants().zip(arrivals.ids()).collect();
        let mut tx = self.begin_immediate().await?;
        let by = i64::from(by);
        let rows =
            query_each(&mut *tx, &self.store.inner.names, &sql!(COUNT), &keys, |statement, (tenant, id)| {
                statement
                    .bind(consumer.as_str().to_owned())
                    .bind((*tenant).to_owned())
                    .bind(*id)
                    .bind(by)
                    .bind(by)
            })
            .await?;
        tx.commit().await.map_err(store_error)?;
        let mut counts: HashMap<(&str, Uuid), u32> = HashMap::with_capacity(rows.len());
        for row in &rows {
            counts.insert((row.get(0)?, row.get(1)?), u32::try_from(row.get::<i64>(2)?).unwrap_or(u32::MAX));
        }
        let count = |arrival: &Arrival| {
            let tenant = arrival.tenant.as_ref().map_or("", TenantId::as_str);
            counts.get(&(tenant, arrival.id.as_uuid())).copied().unwrap_or(0)
        };
        Ok(batch.iter().map(count).collect())
    }

    pub(super) async fn uncount_all(
        &self,
        tx: &mut Tx,
        consumer: &ConsumerName,
        batch: &[Arrival],
    ) -> Result<(), Error> {
        let arrivals = Arrivals::of(batch);
        let keys: Vec<_> = arrivals.tenants().zip(arrivals.ids()).collect();
        query_each(&mut **tx, &self.store.inner.names, &sql!(UNCOUNT), &keys, |statement, (tenant, id)| {
            statement.bind(consumer.as_str().to_owned()).bind((*tenant).to_owned()).bind(*id)
        })
        .await?;
        Ok(())
    }
}
