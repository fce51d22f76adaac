//! Admitting received messages: one statement on the caller's own connection, with any driver; see
//! `migrations/0001_initial/11_inbox.sql`.

use super::{
    PostgresNames,
    drivers::Driver,
    names::Sql,
    statement::{Param, Statement},
};
use crate::arrivals::Arrivals;
use postrider_core::{Admission, Arrival, ConsumerName, Error};
use uuid::Uuid;

/// Admits received messages in the caller's own transaction: the first delivery of each, not its duplicates. Needs no connection of
/// its own, and is cheap to clone.
///
/// It is an [`Inbox`](postrider_core::Inbox) for the transactions of every driver that a
/// [`PostgresOutbox`](super::PostgresOutbox) stages in, behind the same features.
///
/// ```no_run
/// use postrider_core::{Arrival, ConsumerName, InboxExt, MessageId};
/// use postrider_stores::postgres::PostgresInbox;
///
/// # async fn run(
/// #     pool: sqlx::PgPool, ids: Vec<MessageId>, acknowledge: impl Fn(MessageId),
/// # ) -> Result<(), Box<dyn std::error::Error>> {
/// let inbox = PostgresInbox::default();
/// let billing = ConsumerName::new("billing")?;
/// for id in ids {
///     let mut tx = pool.begin().await?;
///     if inbox.admit(&mut tx, &billing, Arrival::new(id)).await?.is_first() {
///         sqlx::query("update accounts set invoices = invoices + 1").execute(&mut *tx).await?;
///     }
///     tx.commit().await?; // the deduplication record and the effect, or neither
///     acknowledge(id);
/// }
/// # Ok(()) }
/// ```
///
/// In a transaction that is `REPEATABLE READ` or stricter, a message that another transaction admits meanwhile is a serialization
/// failure, like any row that two transactions write: roll back and begin again. A transaction that admits several batches can deadlock with another
/// that admits the same in another order; PostgreSQL ends one of the two. One batch cannot.
#[derive(Debug, Clone)]
pub struct PostgresInbox {
    admit: Sql,
}

impl Default for PostgresInbox {
    /// Admits in the tables with the default names.
    fn default() -> Self {
        Self::new(&PostgresNames::default())
    }
}

impl PostgresInbox {
    /// Admits in the tables of `names`.
    pub fn new(names: &PostgresNames) -> Self {
        Self { admit: names.sql(&sql!(ADMIT)) }
    }

    /// For sqlx transactions on connections through a pooler such as PgBouncer, like
    /// [`PostgresOutbox::behind_pooler`](super::PostgresOutbox::behind_pooler).
    #[must_use]
    pub fn behind_pooler(&self) -> Self {
        Self { admit: self.admit.clone().unprepared() }
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
        let ids: Vec<Uuid> = arrivals.ids().collect();
        let mut admissions = vec![Admission::First; ids.len()];
        let params =
            vec![Param::Name(consumer.as_str()), Param::Names(arrivals.tenants().collect()), Param::Ids(ids)];
        let duplicates = driver.fetch_replies(Statement { sql: self.admit.clone(), params }).await?;
        for reply in duplicates {
            let position = usize::try_from(reply.position).unwrap_or_default();
            if let Some(admission) = admissions.get_mut(position.wrapping_sub(1)) {
                *admission = Admission::Duplicate;
            }
        }
        Ok(arrivals.in_batch_order(admissions))
    }
}

/// Returns the duplicates, in the columns of the general staging statement.
const ADMIT: &str = "select n, 'duplicate'::text, id from {admit}($1::text, $2::text[], $3::uuid[])";
