//! The consumer's side: dead letters of received messages, and delivery counts for brokers that do not count.

use super::{PostgresTransactions, connections::ConnectionMode, error::store_error, settle_batch};
use crate::arrivals::Arrivals;
use postrider_core::{
    Arrival, ConsumerName, DeadLetter, Error, Limits, Message, Outbox, QueueName, StageOutcome, TenantId,
};
use sqlx::{Postgres, Row, Transaction};
use std::collections::{BTreeMap, HashMap};
use uuid::Uuid;

/// Moves messages that were staged just before in the same transaction to `dead`.
const INSERT_DEAD: &str = "with gone as ( \
      delete from {ready} r where r.queue + 0 = (select q.id from {queue} q where q.name = $1) and r.message_id = any($2::uuid[]) \
      returning r.*) \
    insert into {dead} (id, staged_at, message_id, queue, ordered, payload, event_type, content_type, key, tenant, subject, \
      timer, headers, due_at, attempts, deliveries, reason, last_error) \
    select m.id, m.staged_at, m.message_id, m.queue, m.ordered, m.payload, m.event_type, m.content_type, m.key, m.tenant, m.subject, \
      m.timer, m.headers, m.due_at, 0, u.deliveries, u.reason, u.error \
    from unnest($2::uuid[], $3::integer[], $4::text[], $5::text[]) u(id, deliveries, reason, error) \
    join gone m on m.message_id = u.id";

const COUNT: &str = "insert into {inbox_count} as c (counted_at, message_id, deliveries, consumer, tenant) \
    select clock_timestamp(), u.id, greatest($4::integer, 0), $1, u.tenant from unnest($2::text[], $3::uuid[]) u(tenant, id) \
    on conflict (consumer, tenant, message_id) \
      do update set deliveries = greatest(c.deliveries + $4, 0), counted_at = excluded.counted_at \
    returning tenant, message_id, deliveries";

/// Each row is found with a probe of the primary key; a join might read the whole table.
const DELETE_COUNTS: &str = "delete from {inbox_count} c where c.ctid = any(array(select ( \
      select m.ctid from {inbox_count} m where m.consumer = $1 and m.tenant = u.tenant and m.message_id = u.id) \
    from unnest($2::text[], $3::uuid[]) u(tenant, id)))";

/// The statement that deletes counts, for tests that read its plan.
pub(super) fn text(names: &super::PostgresNames) -> (&'static str, String) {
    ("delete counts", names.sql(&sql!(DELETE_COUNTS)).as_str().to_owned())
}

/// The error code of every statement in a transaction that has failed already.
const ABORTED: &str = "25P02";

type Tx = Transaction<'static, Postgres>;

impl PostgresTransactions {
    pub(super) async fn dead_letter_all(&self, tx: &mut Tx, letters: &[DeadLetter]) -> Result<(), Error> {
        // Another system has sent the message: our own limits are no reason to lose it.
        let limits = Limits::default().with_payload_bytes(usize::MAX).with_batch_bytes(usize::MAX);
        let outbox = super::PostgresOutbox::with_limits(self.store.inner.names.clone(), limits);
        let outbox =
            if self.store.inner.mode == ConnectionMode::Pooled { outbox.behind_pooler() } else { outbox };
        let messages: Vec<Message> = letters.iter().map(|letter| letter.message.clone()).collect();
        let staged = outbox.stage_all(tx, &messages).await?;
        let mut fresh: BTreeMap<&QueueName, Vec<(Uuid, &DeadLetter)>> = BTreeMap::new();
        for (letter, (id, outcome)) in letters.iter().zip(staged.outcomes()) {
            if *outcome == StageOutcome::New {
                fresh.entry(letter.message.queue()).or_default().push((id.as_uuid(), letter));
            }
        }
        for (queue, letters) in fresh {
            let sql = self.sql(&sql!(INSERT_DEAD));
            let query = sql.query().bind(queue.as_str());
            let query = query.bind(letters.iter().map(|(id, _)| *id).collect::<Vec<_>>());
            let deliveries =
                letters.iter().map(|(_, letter)| i32::try_from(letter.deliveries).unwrap_or(i32::MAX));
            let query = query.bind(deliveries.collect::<Vec<_>>());
            let query =
                query.bind(letters.iter().map(|(_, letter)| letter.reason.as_str()).collect::<Vec<_>>());
            let query = query.bind(
                letters
                    .iter()
                    .map(|(_, letter)| settle_batch::text(letter.error.as_deref()))
                    .collect::<Vec<_>>(),
            );
            query.execute(&mut **tx).await.map_err(store_error)?;
        }
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
        let sql = self.sql(&sql!(COUNT));
        let query = sql.query().bind(consumer.as_str());
        let query = query.bind(arrivals.tenants().collect::<Vec<_>>());
        let query = query.bind(arrivals.ids().collect::<Vec<_>>());
        let query = query.bind(by);
        let rows = query.fetch_all(&self.pool).await.map_err(store_error)?;
        let mut counts: HashMap<(&str, Uuid), i32> = HashMap::with_capacity(rows.len());
        for row in &rows {
            let name = (row.try_get(0).map_err(store_error)?, row.try_get(1).map_err(store_error)?);
            counts.insert(name, row.try_get(2).map_err(store_error)?);
        }
        let count = |arrival: &Arrival| {
            let tenant = arrival.tenant.as_ref().map_or("", TenantId::as_str);
            counts.get(&(tenant, arrival.id.as_uuid())).map_or(0, |count| count.unsigned_abs())
        };
        Ok(batch.iter().map(count).collect())
    }

    pub(super) async fn uncount_all(
        &self,
        tx: &mut Tx,
        consumer: &ConsumerName,
        batch: &[Arrival],
    ) -> Result<(), Error> {
        if batch.is_empty() {
            return Ok(());
        }
        let arrivals = Arrivals::of(batch);
        let sql = self.sql(&sql!(DELETE_COUNTS));
        let query = sql.query().bind(consumer.as_str());
        let query = query.bind(arrivals.tenants().collect::<Vec<_>>());
        let query = query.bind(arrivals.ids().collect::<Vec<_>>());
        query.execute(&mut **tx).await.map_err(store_error)?;
        Ok(())
    }

    pub(super) async fn verify(&self, tx: &mut Tx) -> Result<(), Error> {
        let result = self.sql(&sql!("select 1")).query().execute(&mut **tx).await;
        result.map(|_| ()).map_err(|error| match &error {
            // The database is available. An earlier statement of this transaction has failed, and the handler went on.
            sqlx::Error::Database(database) if database.code().as_deref() == Some(ABORTED) => {
                Error::Other(error.into())
            }
            _ => store_error(error),
        })
    }
}
