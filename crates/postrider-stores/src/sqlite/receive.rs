//! Receiving: parking what is not handled, and counting for brokers that do not.

use super::{
    SqliteOutbox, SqliteStore, SqliteTransactions,
    drivers::{Cells, Driver},
    each::each,
    error::store_error,
    row::BODY,
};
use crate::arrivals::Arrivals;
use postrider_core::{
    Admission, Arrival, ConsumerName, Error, Fate, Inbox, Limits, Message, Outbox, Parked, Receive, TenantId,
    transact::Transact,
};
use sqlx::{Sqlite, Transaction};
use std::collections::HashMap;
use uuid::Uuid;

const COUNT: &str = "insert into {inbox_count} (consumer, tenant, message_id, deliveries, counted_at) values (?, ?, ?, max(?, 0), {now}) \
    on conflict (consumer, tenant, message_id) do update set deliveries = max(deliveries + ?, 0), counted_at = excluded.counted_at \
    returning tenant, message_id, deliveries";

const UNCOUNT: &str = "delete from {inbox_count} where consumer = ? and tenant = ? and message_id = ?";

type Tx = Transaction<'static, Sqlite>;

impl Inbox<Tx> for SqliteTransactions {
    async fn admit_all(
        &self,
        tx: &mut Tx,
        consumer: &ConsumerName,
        arrivals: &[Arrival],
    ) -> Result<Vec<Admission>, Error> {
        self.store.inbox().admit_all(tx, consumer, arrivals).await
    }
}

impl Receive for SqliteTransactions {
    type Store = SqliteStore;

    fn store(&self) -> SqliteStore {
        self.store.clone()
    }

    async fn park_all(&self, tx: &mut Tx, parked: &[Parked]) -> Result<(), Error> {
        // Somebody else has sent it: our own limits are no reason to lose it.
        let limits = Limits::default().with_payload_bytes(usize::MAX).with_batch_bytes(usize::MAX);
        let names = &self.store.inner.names;
        let outbox = SqliteOutbox::with_limits(names.clone(), limits);
        let messages: Vec<Message> = parked.iter().map(|parked| parked.message.clone()).collect();
        let staged = outbox.stage_all(tx, &messages).await?;
        let new = parked.iter().zip(staged.fates()).filter(|(_, (_, fate))| *fate == Fate::New);
        // What was staged a moment ago, in this very transaction, is buried.
        let letters: Vec<_> = new.map(|(parked, (id, _))| (parked, id.as_uuid())).collect();
        let there = "queue = (select q.id from {queue} q where q.name = ?) and message_id = ?";
        let tell = format!("update {{ready}} set deliveries = ?, last_error = ? where {there}");
        each(&mut **tx, names, &tell, &letters, |statement, (parked, id)| {
            let statement = statement.bind(parked.deliveries).bind(parked.error.clone());
            statement.bind(parked.message.queue().as_str().to_owned()).bind(*id)
        })
        .await?;
        let bury = format!(
            "insert into {{dead}} (id, due_at, failed_at, reason, {BODY}) select id, due_at, {{now}}, ?, {BODY} from {{ready}} where {there}"
        );
        each(&mut **tx, names, &bury, &letters, |statement, (parked, id)| {
            let statement = statement.bind(parked.reason.as_str());
            statement.bind(parked.message.queue().as_str().to_owned()).bind(*id)
        })
        .await?;
        each(
            &mut **tx,
            names,
            &format!("delete from {{ready}} where {there}"),
            &letters,
            |statement, (parked, id)| statement.bind(parked.message.queue().as_str().to_owned()).bind(*id),
        )
        .await?;
        Ok(())
    }

    async fn count_all(
        &self,
        consumer: &ConsumerName,
        batch: &[Arrival],
        by: i32,
    ) -> Result<Vec<u32>, Error> {
        if batch.is_empty() {
            return Ok(Vec::new());
        }
        let arrivals = Arrivals::of(batch);
        let each_one: Vec<_> = arrivals.tenants().zip(arrivals.ids()).collect();
        let mut tx = self.begin().await?;
        let by = i64::from(by);
        let rows = each(&mut *tx, &self.store.inner.names, COUNT, &each_one, |statement, (tenant, id)| {
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

    async fn uncount_all(
        &self,
        tx: &mut Tx,
        consumer: &ConsumerName,
        batch: &[Arrival],
    ) -> Result<(), Error> {
        let arrivals = Arrivals::of(batch);
        let each_one: Vec<_> = arrivals.tenants().zip(arrivals.ids()).collect();
        each(&mut **tx, &self.store.inner.names, UNCOUNT, &each_one, |statement, (tenant, id)| {
            statement.bind(consumer.as_str().to_owned()).bind((*tenant).to_owned()).bind(*id)
        })
        .await?;
        Ok(())
    }

    async fn verify(&self, tx: &mut Tx) -> Result<(), Error> {
        // SQLite ends a transaction by itself after some errors, and what follows would run outside of it.
        let statement =
            self.store.inner.names.statement("savepoint postrider_verify; release postrider_verify");
        tx.execute(statement).await?;
        Ok(())
    }
}
