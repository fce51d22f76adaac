//! The actions of operators. Each is a function in the database, which writes its audit row as well.

use super::{
    PostgresStore, connections::ConnectionMode, error::store_error, prune, selection::Verb,
    transaction_connection::TransactionConnection,
};
use crate::template::Template;
use async_trait::async_trait;
use postrider_core::{
    Error, Message, MessageId, OrderingKey, Outbox, Pausable, QueueName, StageReport, SubjectId, TenantId,
    TimerName,
    follow_up::ErasureReport,
    inspect::{Action, ChangeReport, Chunk, Operate, Selection},
};
use sqlx::Row;
use std::time::Duration;

/// Requeues dead letters under their ids, with their counters at zero. On an ordered queue each returns to its old position, and
/// the cursor of its lane with it; elsewhere it gets a new position, so that claimers that have passed the old one find it.
const REQUEUE: &str = "select {requeue}($1, $2, $3, $4)";
const DISCARD: &str = "select {discard}($1, $2, $3, $4)";
const RELEASE_KEY: &str = "select {release_key}($1, $2, $3, $4)";
const AUDIT_REPLAY: &str = "select {audit_replay}($1, $2, $3, $4)";
const DROP_TIMER: &str = "select {drop_timer}($1, $2, $3, $4)";

#[async_trait]
impl Operate for PostgresStore {
    async fn requeue(
        &self,
        queue: &QueueName,
        ids: &[MessageId],
        action: &Action,
    ) -> Result<Vec<MessageId>, Error> {
        self.operate(&sql!(REQUEUE), queue, ids, action).await
    }

    async fn discard(
        &self,
        queue: &QueueName,
        ids: &[MessageId],
        action: &Action,
    ) -> Result<Vec<MessageId>, Error> {
        self.operate(&sql!(DISCARD), queue, ids, action).await
    }

    async fn release_key(
        &self,
        queue: &QueueName,
        key: &OrderingKey,
        action: &Action,
    ) -> Result<bool, Error> {
        action.check()?;
        let Some(queue) = self.queue(queue).await? else { return Ok(false) };
        let sql = self.inner.names.sql(&sql!(RELEASE_KEY));
        let query = sql.query().bind(queue.number).bind(key.as_str()).bind(&action.actor).bind(&action.why);
        self.inner.connections.run_for_one(query).await?.try_get(0).map_err(store_error)
    }

    async fn pause(&self, what: &Pausable, action: &Action) -> Result<bool, Error> {
        self.pause_work(what, action).await
    }

    async fn resume(&self, what: &Pausable, action: &Action) -> Result<bool, Error> {
        self.resume_work(what, action).await
    }

    async fn requeue_next(
        &self,
        selection: &Selection,
        chunk: &Chunk,
        action: &Action,
    ) -> Result<ChangeReport, Error> {
        self.change_next(Verb::Requeue, selection, chunk, action).await
    }

    async fn discard_next(
        &self,
        selection: &Selection,
        chunk: &Chunk,
        action: &Action,
    ) -> Result<ChangeReport, Error> {
        self.change_next(Verb::Discard, selection, chunk, action).await
    }

    async fn replay(
        &self,
        queue: &QueueName,
        originals: &[MessageId],
        copies: &[Message],
        action: &Action,
    ) -> Result<StageReport, Error> {
        action.check()?;
        let inner = &self.inner;
        let replaying = async {
            let mut connection = TransactionConnection::acquire(&inner.connections).await?;
            let mut tx = connection.begin(inner.mode).await?;
            let staged = self.outbox().stage_all(&mut tx, copies).await?;
            let audit = match inner.mode {
                ConnectionMode::Direct => inner.names.sql(&sql!(AUDIT_REPLAY)),
                ConnectionMode::Pooled => inner.names.sql(&sql!(AUDIT_REPLAY)).unprepared(),
            };
            let audit = audit
                .query()
                .bind(queue.as_str())
                .bind(originals.iter().map(MessageId::as_uuid).collect::<Vec<_>>())
                .bind(&action.actor)
                .bind(&action.why);
            audit.execute(&mut *tx).await.map_err(store_error)?;
            tx.commit().await.map_err(store_error)?;
            connection.release();
            Ok(staged)
        };
        inner.connections.within_timeout(replaying).await
    }

    async fn drop_timer(&self, queue: &QueueName, timer: &TimerName, action: &Action) -> Result<bool, Error> {
        action.check()?;
        let Some(queue) = self.queue(queue).await? else { return Ok(false) };
        let sql = self.inner.names.sql(&sql!(DROP_TIMER));
        let query = sql.query().bind(queue.number).bind(timer.as_str());
        let query = query.bind(&action.actor).bind(&action.why);
        self.inner.connections.run_for_one(query).await?.try_get(0).map_err(store_error)
    }

    async fn prune_audit(&self, age: Duration, max: usize, action: &Action) -> Result<u64, Error> {
        action.check()?;
        prune::audit(&self.inner.connections, &self.inner.names, age, max, action).await
    }

    async fn erase_subject(
        &self,
        tenant: Option<&TenantId>,
        subject: &SubjectId,
        action: &Action,
    ) -> Result<ErasureReport, Error> {
        Self::erase_subject(self, tenant, subject, action).await
    }
}

impl PostgresStore {
    /// Runs one of the operator's functions on messages, and returns the ids that it changed.
    async fn operate(
        &self,
        template: &Template,
        queue: &QueueName,
        ids: &[MessageId],
        action: &Action,
    ) -> Result<Vec<MessageId>, Error> {
        action.check()?;
        let Some(queue) = self.queue(queue).await? else { return Ok(Vec::new()) };
        let sql = self.inner.names.sql(template);
        let query = sql
            .query()
            .bind(queue.number)
            .bind(ids.iter().map(MessageId::as_uuid).collect::<Vec<_>>())
            .bind(&action.actor)
            .bind(&action.why);
        let row = self.inner.connections.run_for_one(query).await?;
        let changed: Vec<uuid::Uuid> = row.try_get(0).map_err(store_error)?;
        Ok(changed.into_iter().map(MessageId::from_uuid).collect())
    }
}
