//! Ending follow-ups in the application's transactions. `migrations/0013_follow_ups.sql` has what the database does of it.
//!
//! Landing is three statements. The lock of the group comes first and alone: what follows has a snapshot of its own, and so sees what
//! whoever held the lock before has committed. Then the claim ends, as any other does. Then one function forgets what is kept of the payload and
//! tells whether anything of the group is left, in one snapshot: a message that moves from room to room meanwhile is in one of them.

use super::{
    PostgresStore, PostgresTransactions,
    batch::seconds,
    connections::{Route, Unprepared},
    error::store_error,
    queues::Known,
    row::Moment,
    settle::{MOVED, moved},
};
use postrider_core::{
    AuditSink, Error, Invalid, Lease, Message, Outbox, QueueName, Reason, Settle, Staged, TenantId,
    TimerName,
    follow_up::{Follow, Group, Landing},
    limits::FARTHEST_DUE,
};
use sqlx::{Postgres, Row, Transaction};
use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

type Tx = Transaction<'static, Postgres>;

/// Held until the transaction ends. Two groups of one hash wait for each other in vain, and no worse.
const LOCK: &str = "select pg_advisory_xact_lock(hashtextextended($1 collate \"C\", 0)), current_setting('transaction_isolation')";

const IS_LAST: &str = "select {is_last}($1, $2, $3, $4, $5, $6)";

/// What names a content type and carries nothing has carried something once.
const FORGET: &str = "update {dead} d set payload = '', content_type = coalesce(d.content_type, 'application/json') \
    where d.message_id = $1 and d.queue + 0 = $2 and d.payload <> ''";

impl Outbox<Tx> for PostgresTransactions {
    async fn stage_all(&self, tx: &mut Tx, messages: &[Message]) -> Result<Staged, Error> {
        self.store.outbox().stage_all(tx, messages).await
    }

    async fn cancel_timer(&self, tx: &mut Tx, queue: &QueueName, timer: &TimerName) -> Result<bool, Error> {
        self.store.outbox().cancel_timer(tx, queue, timer).await
    }
}

/// Landing needs transactions that are `READ COMMITTED`: in a stricter one, both of two that land the last follow-ups of a
/// group would see the other's. It refuses others; [`PostgresTransactions::read_committed`] begins the right ones, whatever the
/// database's default is.
impl Follow for PostgresTransactions {
    type Store = PostgresStore;

    fn store(&self) -> PostgresStore {
        self.store.clone()
    }

    fn ledger(&self) -> Arc<dyn AuditSink> {
        Arc::new(self.store.ledger())
    }

    async fn land(&self, tx: &mut Tx, lease: &Lease, group: &Group) -> Result<Landing, Error> {
        check(lease)?;
        self.lock(tx, group).await?;
        let known = self.known(tx, lease.queue()).await?;
        let Some(queue) = known.named(lease.queue()) else { return Ok(Landing::Lost) };
        if !self.end(tx, &known, lease.done()).await? {
            return Ok(Landing::Lost);
        }
        let sql = self.sql(IS_LAST);
        let query = sql
            .query()
            .bind(queue.number)
            .bind(lease.id().as_uuid())
            .bind(queue.policy.keep_for.is_some())
            .bind(group.tenant.as_ref().map(TenantId::as_str))
            .bind(group.subject.as_str())
            .bind(group.operation.as_str());
        let row = query.fetch_one(&mut **tx).await.map_err(store_error)?;
        Ok(if row.try_get(0).map_err(store_error)? { Landing::Last } else { Landing::Open })
    }

    async fn abandon(&self, tx: &mut Tx, lease: &Lease, reason: Reason, error: &str) -> Result<bool, Error> {
        check(lease)?;
        let known = self.known(tx, lease.queue()).await?;
        let Some(queue) = known.named(lease.queue()) else { return Ok(false) };
        if !self.end(tx, &known, lease.dead(reason, error)).await? {
            return Ok(false);
        }
        let sql = self.sql(FORGET);
        let query = sql.query().bind(lease.id().as_uuid()).bind(queue.number);
        query.execute(&mut **tx).await.map_err(store_error)?;
        Ok(true)
    }

    async fn schedule(
        &self,
        tx: &mut Tx,
        lease: &Lease,
        not_before: SystemTime,
        at_least: Duration,
    ) -> Result<Option<SystemTime>, Error> {
        check(lease)?;
        let known = self.known(tx, lease.queue()).await?;
        let Some(queue) = known.named(lease.queue()) else { return Ok(None) };
        let sql = self.sql(&schedule_template());
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
    /// Waits until nobody else lands a follow-up of the group.
    async fn lock(&self, tx: &mut Tx, group: &Group) -> Result<(), Error> {
        let sql = self.sql(LOCK);
        let query = sql.query().bind(self.lock_of(group));
        let row = query.fetch_one(&mut **tx).await.map_err(store_error)?;
        match row.try_get(1).map_err(store_error)? {
            // To PostgreSQL the second is the first.
            "read committed" | "read uncommitted" => Ok(()),
            isolation => {
                let rule = format!(
                    "is {isolation}, in which nobody sees that the others of a group have ended; begin it as READ COMMITTED: \
                     PostgresTransactions::read_committed does"
                );
                Err(Invalid::rule("the isolation of the transaction", rule).into())
            }
        }
    }

    /// Its lock has one name in every process, and another in other tables of the same database.
    fn lock_of(&self, group: &Group) -> String {
        let Group { queue, tenant, subject, operation } = group;
        let names = &self.store.inner.names;
        let tenant = tenant.as_ref().map_or("", TenantId::as_str);
        let parts =
            [names.schema(), names.prefix(), queue.as_str(), tenant, subject.as_str(), operation.as_str()];
        parts.join("\u{1f}")
    }

    /// The queues, read on the transaction's own connection.
    async fn known(&self, tx: &mut Tx, queue: &QueueName) -> Result<Arc<Known>, Error> {
        let queues = &self.store.inner.queues;
        match self.store.inner.route {
            Route::Direct => queues.known(&mut &mut **tx, [queue]).await,
            Route::Pooled => queues.known(&mut Unprepared(tx), [queue]).await,
        }
    }

    /// Ends a claim by what is known of its queue, and answers whether it was ours.
    async fn end(&self, tx: &mut Tx, known: &Known, settle: Settle) -> Result<bool, Error> {
        let settle = std::slice::from_ref(&settle);
        let lost = match self.store.inner.route {
            Route::Direct => self.store.settle_known(&mut **tx, known, None, settle).await?,
            Route::Pooled => self.store.settle_known(Unprepared(tx), known, None, settle).await?,
        };
        Ok(lost.is_empty())
    }
}

fn check(lease: &Lease) -> Result<(), Invalid> {
    if lease.turn().is_some() {
        let rule = format!("{:?} is ordered; follow-ups wait in a queue that is not", lease.queue().as_str());
        return Err(Invalid::rule("queue", rule));
    }
    Ok(())
}

/// Guarded by the token. It always waits in the other room: nobody remembers a place in this one that may be rolled back.
fn schedule_template() -> String {
    let columns = moved("m");
    format!(
        "with put_off as (delete from {{ready}} r where r.message_id = $1::uuid and r.token = $2::uuid \
           and r.queue + 0 = $3::smallint returning r.*), \
         clock as materialized (select clock_timestamp() as now) \
         insert into {{later}} ({MOVED}, due_at, attempts, deliveries) \
         select {columns}, least(greatest($4::timestamptz, c.now + $5::float8 * interval '1 s'), c.now + $6::float8 * interval '1 s'), 0, 0 \
         from put_off m, clock c on conflict do nothing returning due_at"
    )
}
