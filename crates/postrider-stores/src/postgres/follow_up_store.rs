//! Settling follow-ups in the application's transactions. `migrations/0001_initial/13_follow_ups.sql` has the database's part.
//!
//! Completing a follow-up is three statements. The lock of the group comes first and alone: the following statements have snapshots
//! of their own, and so see what the previous holder of the lock has committed. Then the claim is settled, as any other. Then one
//! function erases the archived payload and returns whether any follow-up of the group is left, in one snapshot: a message that
//! moves between tables meanwhile is in one of them.

use super::{
    PostgresTransactions,
    connections::{ConnectionMode, UnpreparedConnection},
    error::store_error,
    queues::QueueMap,
    row::Moment,
    settle::{MOVED, MOVED_OF_M},
    settle_batch::seconds,
};
use postrider_core::{
    Error, Invalid, Lease, LeaseSettlement, QueueName, Reason, TenantId,
    follow_up::{FollowUpGroup, GroupProgress},
    limits::FARTHEST_DUE,
};
use sqlx::{Postgres, Row, Transaction};
use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

type Tx = Transaction<'static, Postgres>;

/// Held until the transaction ends. Two groups with the same hash wait for each other without need, and nothing worse.
const LOCK: &str = "select pg_advisory_xact_lock(hashtextextended($1 collate \"C\", 0)), current_setting('transaction_isolation')";

const FINISH: &str = "select {finish_follow_up}($1, $2, $3, $4, $5, $6)";

/// An empty payload with a content type is one that was erased.
const ERASE_PAYLOAD: &str = "update {dead} d set payload = '', content_type = coalesce(d.content_type, 'application/json') \
    where d.message_id = $1 and d.queue + 0 = $2 and d.payload <> ''";

/// [`land`](FollowUpStore::land) needs transactions that are `READ COMMITTED`: in a stricter one, two transactions that complete the
/// last two follow-ups of a group would each see the other's as open. It refuses others; [`PostgresTransactions::read_committed`]
/// begins the right ones, whatever the database's default.
impl PostgresTransactions {
    pub(super) async fn land(
        &self,
        tx: &mut Tx,
        lease: &Lease,
        group: &FollowUpGroup,
    ) -> Result<GroupProgress, Error> {
        check(lease)?;
        self.lock(tx, group).await?;
        let known = self.known(tx, lease.queue()).await?;
        let Some(queue) = known.named(lease.queue()) else { return Ok(GroupProgress::Lost) };
        if !self.end(tx, &known, lease.done()).await? {
            return Ok(GroupProgress::Lost);
        }
        let sql = self.sql(&sql!(FINISH));
        let query = sql
            .query()
            .bind(queue.number)
            .bind(lease.id().as_uuid())
            .bind(queue.policy.keep_for.is_some())
            .bind(group.tenant.as_ref().map(TenantId::as_str))
            .bind(group.subject.as_str())
            .bind(group.operation.as_str());
        let row = query.fetch_one(&mut **tx).await.map_err(store_error)?;
        Ok(if row.try_get(0).map_err(store_error)? { GroupProgress::Last } else { GroupProgress::Open })
    }

    pub(super) async fn abandon(
        &self,
        tx: &mut Tx,
        lease: &Lease,
        reason: Reason,
        error: &str,
    ) -> Result<bool, Error> {
        check(lease)?;
        let known = self.known(tx, lease.queue()).await?;
        let Some(queue) = known.named(lease.queue()) else { return Ok(false) };
        if !self.end(tx, &known, lease.dead(reason, error)).await? {
            return Ok(false);
        }
        let sql = self.sql(&sql!(ERASE_PAYLOAD));
        let query = sql.query().bind(lease.id().as_uuid()).bind(queue.number);
        query.execute(&mut **tx).await.map_err(store_error)?;
        Ok(true)
    }

    pub(super) async fn schedule(
        &self,
        tx: &mut Tx,
        lease: &Lease,
        not_before: SystemTime,
        at_least: Duration,
    ) -> Result<Option<SystemTime>, Error> {
        check(lease)?;
        let known = self.known(tx, lease.queue()).await?;
        let Some(queue) = known.named(lease.queue()) else { return Ok(None) };
        let sql = self.sql(&sql!(SCHEDULE, moved = sql!(MOVED), of_m = sql!(MOVED_OF_M)));
        let query = sql
            .query()
            .bind(lease.id().as_uuid())
            .bind(lease.token().as_uuid())
            .bind(queue.number)
            .bind(Moment(not_before))
            .bind(seconds(at_least))
            .bind(FARTHEST_DUE.as_secs_f64());
        let row = query.fetch_optional(&mut **tx).await.map_err(store_error)?;
        row.map(|row| row.try_get::<Moment, _>(0).map(|due| due.0)).transpose().map_err(store_error)
    }
}

impl PostgresTransactions {
    /// Waits until no other transaction completes a follow-up of the group.
    async fn lock(&self, tx: &mut Tx, group: &FollowUpGroup) -> Result<(), Error> {
        let sql = self.sql(&sql!(LOCK));
        let query = sql.query().bind(self.lock_name(group));
        let row = query.fetch_one(&mut **tx).await.map_err(store_error)?;
        match row.try_get(1).map_err(store_error)? {
            // PostgreSQL treats READ UNCOMMITTED as READ COMMITTED.
            "read committed" | "read uncommitted" => Ok(()),
            isolation => {
                let rule = format!(
                    "is {isolation}, which hides that the others of a group have ended; begin it as READ COMMITTED, with \
                     PostgresTransactions::read_committed"
                );
                Err(Invalid::rule("the isolation of the transaction", rule).into())
            }
        }
    }

    /// The name of the group's lock: the same in every process, and another one for other tables of the same database.
    fn lock_name(&self, group: &FollowUpGroup) -> String {
        let FollowUpGroup { queue, tenant, subject, operation } = group;
        let names = &self.store.inner.names;
        let tenant = tenant.as_ref().map_or("", TenantId::as_str);
        let parts =
            [names.schema(), names.prefix(), queue.as_str(), tenant, subject.as_str(), operation.as_str()];
        parts.join("\u{1f}")
    }

    /// The queues, read on the transaction's own connection.
    async fn known(&self, tx: &mut Tx, queue: &QueueName) -> Result<Arc<QueueMap>, Error> {
        let queues = &self.store.inner.queues;
        match self.store.inner.mode {
            ConnectionMode::Direct => queues.known(&mut &mut **tx, [queue]).await,
            ConnectionMode::Pooled => queues.known(&mut UnpreparedConnection(tx), [queue]).await,
        }
    }

    /// Settles a claim, and returns whether its lease was still valid.
    async fn end(&self, tx: &mut Tx, known: &QueueMap, settle: LeaseSettlement) -> Result<bool, Error> {
        let settle = std::slice::from_ref(&settle);
        let lost = match self.store.inner.mode {
            ConnectionMode::Direct => self.store.settle_known(&mut **tx, known, None, settle).await?,
            ConnectionMode::Pooled => {
                self.store.settle_known(UnpreparedConnection(tx), known, None, settle).await?
            }
        };
        Ok(lost.is_empty())
    }
}

fn check(lease: &Lease) -> Result<(), Invalid> {
    if lease.turn().is_some() {
        let rule = format!("{:?} is ordered; follow-ups need an unordered queue", lease.queue().as_str());
        return Err(Invalid::rule("queue", rule));
    }
    Ok(())
}

/// Guarded by the token. The follow-up always moves to `scheduled`: a retry in place would have to be remembered, and the
/// transaction may roll back.
const SCHEDULE: &str = "with rescheduled as (delete from {ready} r where r.message_id = $1::uuid and r.token = $2::uuid \
      and r.queue + 0 = $3::smallint returning r.*), \
    clock as materialized (select clock_timestamp() as now) \
    insert into {scheduled} ({moved}, due_at, attempts, deliveries) \
    select {of_m}, least(greatest($4::timestamptz, c.now + $5::float8 * interval '1 s'), c.now + $6::float8 * interval '1 s'), 0, 0 \
    from rescheduled m, clock c on conflict (message_id, queue) do nothing returning due_at";
