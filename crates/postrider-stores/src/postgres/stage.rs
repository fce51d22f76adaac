//! Staging: one statement on the caller's own connection, with any driver.
//!
//! This module chooses the statement, `statement.rs` writes it, and a driver (`drivers/`) binds and runs it.

use super::{
    PostgresNames,
    drivers::Driver,
    statement::{StageReply, Statements},
};
use postrider_core::{
    Due, Error, Limits, Message, MessageId, QueueName, StageOutcome, StageReport, TimerName, trace,
};
use std::{collections::HashSet, sync::Arc};
use uuid::Uuid;

/// The transactional outbox: stages messages in the caller's own transaction. Needs no connection of its own, and is cheap to clone.
///
/// It is an [`Outbox`](postrider_core::Outbox) for the transactions of several drivers, each behind its own feature; each
/// implementation below has an example.
///
/// | feature | stages in |
/// |---|---|
/// | `postgres` | `sqlx::Transaction<'_, Postgres>` |
/// | `tokio-postgres` | `tokio_postgres::Transaction<'_>` |
/// | `diesel-async` | `diesel_async::AsyncPgConnection`, inside a transaction |
/// | `sea-orm` | `sea_orm::DatabaseTransaction` |
#[derive(Debug, Clone, Default)]
pub struct PostgresOutbox {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    statements: Statements,
    limits: Limits,
}

impl PostgresOutbox {
    /// Stages in the tables of `names`.
    pub fn new(names: PostgresNames) -> Self {
        Self::with_limits(names, Limits::default())
    }

    /// Stages in the tables of `names`, within `limits`.
    pub fn with_limits(names: PostgresNames, limits: Limits) -> Self {
        Self { shared: Arc::new(Shared { statements: Statements::new(names), limits }) }
    }

    /// For sqlx transactions on connections through a pooler such as PgBouncer: keeps no prepared statements, because the next
    /// transaction may be in another session. It costs one more round trip. tokio-postgres does not need this.
    #[must_use]
    pub fn behind_pooler(&self) -> Self {
        let Shared { statements, limits } = self.shared.as_ref();
        Self { shared: Arc::new(Shared { statements: statements.unprepared(), limits: *limits }) }
    }

    /// Stages without notifying idle workers, which find the messages by polling. For two-phase commits: PostgreSQL cannot prepare
    /// a transaction that has notified. `set local postrider.notify = off` has the same effect on every outbox and on plain SQL,
    /// until the transaction ends.
    ///
    /// ```
    /// use postrider_stores::postgres::PostgresOutbox;
    ///
    /// let outbox = PostgresOutbox::default().without_notifications();
    /// // Stage with it, then `PREPARE TRANSACTION` and `COMMIT PREPARED`.
    /// # let _ = outbox;
    /// ```
    #[must_use]
    pub fn without_notifications(&self) -> Self {
        let Shared { statements, limits } = self.shared.as_ref();
        Self { shared: Arc::new(Shared { statements: statements.silent(), limits: *limits }) }
    }

    pub(super) async fn stage_on<D: Driver>(
        &self,
        driver: &mut D,
        messages: &[Message],
    ) -> Result<StageReport, Error> {
        if messages.is_empty() {
            return Ok(StageReport::default());
        }
        self.shared.limits.check(messages)?;
        let messages = &*trace::stamped(messages);
        let ids: Vec<Uuid> = messages
            .iter()
            .map(|message| message.id().map_or_else(Uuid::now_v7, |id| id.as_uuid()))
            .collect();
        let plain = messages
            .iter()
            .all(|message| message.id().is_none() && message.due() == Due::Now && message.timer().is_none());
        // The plain statement inserts nothing when a queue does not exist yet.
        let statements = &self.shared.statements;
        let inserted = plain && driver.execute(statements.plain(messages, &ids, D::KEEPS_PLANS)?).await? > 0;
        let mut outcomes: Vec<_> =
            ids.into_iter().map(|id| (MessageId::from_uuid(id), StageOutcome::New)).collect();
        if !inserted {
            self.stage_general(driver, messages, &mut outcomes).await?;
        }
        Ok(StageReport::new(outcomes))
    }

    async fn stage_general<D: Driver>(
        &self,
        driver: &mut D,
        messages: &[Message],
        outcomes: &mut [(MessageId, StageOutcome)],
    ) -> Result<(), Error> {
        // The same id twice in one batch: the second is a duplicate of the first.
        let mut seen = HashSet::with_capacity(messages.len());
        let mut sent = Vec::with_capacity(messages.len());
        let mut given = Vec::with_capacity(messages.len());
        for (index, message) in messages.iter().enumerate() {
            let (id, outcome) = &mut outcomes[index];
            if seen.insert((message.queue(), *id)) {
                sent.push(index);
                given.push((id.as_uuid(), message));
            } else {
                *outcome = StageOutcome::Duplicate;
            }
        }
        let statement = self.shared.statements.general(&given)?;
        for StageReply { position, outcome, id } in driver.fetch_replies(statement).await? {
            let position =
                usize::try_from(position).ok().and_then(|position| sent.get(position.wrapping_sub(1)));
            if let Some(index) = position {
                outcomes[*index] = (MessageId::from_uuid(id), outcome);
            }
        }
        Ok(())
    }

    pub(super) async fn cancel_on<D: Driver>(
        &self,
        driver: &mut D,
        queue: &QueueName,
        timer: &TimerName,
    ) -> Result<bool, Error> {
        Ok(driver.execute(self.shared.statements.cancel_timer(queue, timer)).await? > 0)
    }
}
