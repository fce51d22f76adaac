//! Admitting: one statement on the caller's own connection. It is a write, so it waits for its turn if it is the first statement of
//! its transaction (`stage.rs` explains why), and SQLite itself makes it atomic.

use super::{
    SqliteNames,
    drivers::{Driver, DriverRow},
    row::json,
    stage::BUSY_TIMEOUT,
    writer::LockBackoff,
};
use crate::arrivals::Arrivals;
use postrider_core::{Admission, Arrival, ConsumerName, Error};
use std::collections::HashSet;
use uuid::Uuid;

/// Deduplicates received messages in the caller's own transaction. Has no connection of its own, and is cheap to clone.
///
/// It is an [`Inbox`](postrider_core::Inbox) for the transactions of every driver that a
/// [`SqliteOutbox`](super::SqliteOutbox) stages in, behind the same features. One transaction writes at a time, so admitting waits until
/// other writing transactions have ended, whatever they have admitted.
///
/// ```no_run
/// use postrider_core::{Arrival, ConsumerName, InboxExt, MessageId};
/// use postrider_stores::sqlite::SqliteInbox;
///
/// # async fn run(
/// #     pool: sqlx::SqlitePool, ids: Vec<MessageId>, acknowledge: impl Fn(MessageId),
/// # ) -> Result<(), Box<dyn std::error::Error>> {
/// let inbox = SqliteInbox::default();
/// let billing = ConsumerName::new("billing")?;
/// for id in ids {
///     let mut tx = pool.begin_with("begin immediate").await?;
///     if inbox.admit(&mut tx, &billing, Arrival::new(id)).await?.is_first() {
///         sqlx::query("update accounts set invoices = invoices + 1").execute(&mut *tx).await?;
///     }
///     tx.commit().await?; // the deduplication record and the effect, or neither
///     acknowledge(id);
/// }
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, Default)]
pub struct SqliteInbox {
    names: SqliteNames,
}

impl SqliteInbox {
    /// An inbox in the tables of `names`.
    pub fn new(names: SqliteNames) -> Self {
        Self { names }
    }

    pub(super) async fn admit_on(
        &self,
        driver: &mut impl Driver,
        consumer: &ConsumerName,
        batch: &[Arrival],
    ) -> Result<Vec<Admission>, Error> {
        if batch.is_empty() {
            return Ok(Vec::new());
        }
        let arrivals = Arrivals::of(batch);
        let ids: Vec<u8> = arrivals.ids().flat_map(Uuid::into_bytes).collect();
        let mut backoff = LockBackoff::for_duration(BUSY_TIMEOUT);
        let rows = loop {
            let admit = self.names.statement(&sql!(ADMIT)).bind(consumer.as_str());
            match driver.rows(admit.bind(json(arrivals.tenants())).bind(&ids[..])).await {
                Ok(rows) => break rows,
                Err(failed) => backoff.wait_after(failed).await?,
            }
        };
        let mut admitted = HashSet::with_capacity(rows.len());
        for row in &rows {
            admitted.insert((row.get::<&str>(0)?, row.get::<Uuid>(1)?));
        }
        let admission = |arrival| {
            if admitted.contains(&arrival) { Admission::First } else { Admission::Duplicate }
        };
        Ok(arrivals.in_batch_order(arrivals.tenants().zip(arrivals.ids()).map(admission).collect()))
    }
}

/// Returns the new records. The ids are concatenated in one blob.
pub(super) const ADMIT: &str = "insert into {inbox} (consumer, tenant, message_id, admitted_at) \
    select ?1, j.value, substr(?3, 16 * j.key + 1, 16), {now} from json_each(?2) j where true \
    on conflict do nothing returning tenant, message_id";
