//! Changes by operators, each with its audit row in the same transaction.

use super::{
    SqliteNames, SqliteStore,
    error::store_error,
    find, lanes,
    list::table,
    prune, queues, removal,
    row::{hex, json},
    selection::{self, BulkAction},
    statement_batch::execute_each_position,
    timestamp::Micros,
    writer::Write,
};
use crate::template::Template;
use async_trait::async_trait;
use postrider_core::{
    Error, Message, MessageId, OrderingKey, Pausable, QueueName, StageReport, SubjectId, TenantId, TimerName,
    follow_up::ErasureReport,
    inspect::{Action, ChangeReport, Chunk, Operate, Selection, StateFilter},
};
use serde_json::{Value, json};
use sqlx::{Row, SqliteConnection};
use std::time::Duration;
use uuid::Uuid;

const ROWS_TO_REQUEUE: &str = "select min(j.key), d.message_id, d.id from json_each(?1) j \
    cross join {table} d on d.message_id = unhex(j.value) and d.queue = ?2 group by d.id order by 1";

/// The message keeps its id, its counters start at zero, and it is no longer a timer: another one may have taken the name.
const REQUEUE: &str = "insert into {ready} (id, queue, message_id, ordered, fair, staged_at, due_at, key, event_type, \
      content_type, tenant, subject, headers, payload) \
    select j.position, d.queue, d.message_id, ?2, ?4, d.staged_at, ?3, \
      case when ?2 then coalesce(d.key, j.name) else nullif(d.key, j.name) end, d.event_type, \
      d.content_type, d.tenant, d.subject, d.headers, d.payload \
    from (select value ->> 0 as old_position, value ->> 1 as position, value ->> 2 as name from json_each(?1)) j \
    cross join {table} d on d.id = j.old_position";

#[async_trait]
impl Operate for SqliteStore {
    async fn requeue(
        &self,
        queue: &QueueName,
        ids: &[MessageId],
        action: &Action,
    ) -> Result<Vec<MessageId>, Error> {
        action.check()?;
        let mut write = self.inner.writer.begin(&self.inner.names).await?;
        let requeued =
            requeue_from(&mut write, &self.inner.names, StateFilter::Dead, queue, ids, action).await?;
        write.commit().await?;
        Ok(requeued)
    }

    async fn discard(
        &self,
        queue: &QueueName,
        ids: &[MessageId],
        action: &Action,
    ) -> Result<Vec<MessageId>, Error> {
        action.check()?;
        let mut write = self.inner.writer.begin(&self.inner.names).await?;
        let discarded = discard(&mut write, &self.inner.names, queue, ids, action).await?;
        write.commit().await?;
        Ok(discarded)
    }

    async fn release_key(
        &self,
        queue: &QueueName,
        key: &OrderingKey,
        action: &Action,
    ) -> Result<bool, Error> {
        action.check()?;
        let mut write = self.inner.writer.begin(&self.inner.names).await?;
        let released = release_key(&mut write, &self.inner.names, queue, key, action).await?;
        write.commit().await?;
        Ok(released)
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
        selection::change_next(&self.inner, BulkAction::Requeue, selection, chunk, action).await
    }

    async fn discard_next(
        &self,
        selection: &Selection,
        chunk: &Chunk,
        action: &Action,
    ) -> Result<ChangeReport, Error> {
        selection::change_next(&self.inner, BulkAction::Discard, selection, chunk, action).await
    }

    async fn replay(
        &self,
        queue: &QueueName,
        originals: &[MessageId],
        copies: &[Message],
        action: &Action,
    ) -> Result<StageReport, Error> {
        action.check()?;
        let names = &self.inner.names;
        let mut write = self.inner.writer.begin(names).await?;
        // An error from here on drops the write, which rolls it back.
        let staged = self.outbox().stage_on(&mut write.connection, copies).await?;
        if let Some(queue) = queues::by_name(&mut write.connection, names, queue).await? {
            let now = write.now;
            let connection = &mut write.connection;
            write_audit_row(connection, names, action, "replay", Some(queue.number), originals, None, now)
                .await?;
        }
        write.commit().await?;
        Ok(staged)
    }

    async fn drop_timer(&self, queue: &QueueName, timer: &TimerName, action: &Action) -> Result<bool, Error> {
        action.check()?;
        find::drop_timer(&self.inner, queue, timer, action).await
    }

    async fn prune_audit(&self, age: Duration, limit: usize, action: &Action) -> Result<u64, Error> {
        action.check()?;
        let mut write = self.inner.writer.begin(&self.inner.names).await?;
        let removed = prune::audit(&mut write, &self.inner.names, age, limit, action).await?;
        write.commit().await?;
        Ok(removed)
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

/// Requeues dead letters or archived messages: at the tail or, on an ordered queue, at their old positions, so that newer messages of
/// the key still run after them.
pub(super) async fn requeue_from(
    write: &mut Write,
    names: &SqliteNames,
    filter: StateFilter,
    queue: &QueueName,
    ids: &[MessageId],
    action: &Action,
) -> Result<Vec<MessageId>, Error> {
    let now = write.now;
    let connection = &mut write.connection;
    let Some(queue) = queues::by_name(&mut *connection, names, queue).await? else { return Ok(Vec::new()) };
    let requested = json(ids.iter().map(|id| hex(id.as_uuid())));
    let table = table(filter);
    let rows = names.sql(&sql!(ROWS_TO_REQUEUE, table));
    let rows = rows.query().bind(requested).bind(queue.number).fetch_all(&mut *connection).await;
    let mut requeued: Vec<(Uuid, i64)> = Vec::new();
    for row in rows.map_err(store_error)? {
        requeued.push((row.try_get(1).map_err(store_error)?, row.try_get(2).map_err(store_error)?));
    }
    if requeued.is_empty() {
        return Ok(Vec::new());
    }
    let (tail, _) = queues::draw_positions(connection, names, requeued.len()).await?;
    let moves = requeued.iter().zip(tail..).map(|((id, old_position), tail)| {
        json!([old_position, if queue.is_ordered() { *old_position } else { tail }, id.to_string()])
    });
    let sql = names.sql(&sql!(REQUEUE, table));
    let query = sql.query().bind(json(moves)).bind(queue.is_ordered()).bind(now);
    let query = query.bind(queue.policy.fair_by_tenant);
    query.execute(&mut *connection).await.map_err(store_error)?;
    let positions: Vec<_> = requeued.iter().map(|(_, old_position)| *old_position).collect();
    execute_each_position(connection, names, &sql!("delete from {table} where id = ?", table), &positions)
        .await?;
    if queue.is_ordered() {
        for (_, position) in &requeued {
            lanes::open(connection, names, *position..position + 1).await?;
        }
    }
    let requeued: Vec<_> = requeued.into_iter().map(|(id, _)| MessageId::from_uuid(id)).collect();
    let verb = if filter == StateFilter::Done { "replay" } else { "requeue" };
    write_audit_row(connection, names, action, verb, Some(queue.number), &requeued, None, now).await?;
    queues::signal(connection, names, queue.has_idle_workers.then_some(queue.number)).await?;
    Ok(requeued)
}

/// Removes messages that are not leased.
pub(super) async fn discard(
    write: &mut Write,
    names: &SqliteNames,
    queue: &QueueName,
    ids: &[MessageId],
    action: &Action,
) -> Result<Vec<MessageId>, Error> {
    let now = write.now;
    let connection = &mut write.connection;
    let Some(queue) = queues::by_name(&mut *connection, names, queue).await? else { return Ok(Vec::new()) };
    let mut discarded = Vec::new();
    for id in ids {
        let uuid = id.as_uuid();
        if removal::remove_unleased(connection, names, queue.number, uuid, now).await?
            || remove(connection, names, &sql!("{dead}"), queue.number, uuid).await?
            || remove(connection, names, &sql!("{archive}"), queue.number, uuid).await?
        {
            discarded.push(*id);
        }
    }
    if !discarded.is_empty() {
        write_audit_row(connection, names, action, "discard", Some(queue.number), &discarded, None, now)
            .await?;
    }
    Ok(discarded)
}

pub(super) async fn remove(
    connection: &mut SqliteConnection,
    names: &SqliteNames,
    table: &Template,
    queue: i64,
    id: Uuid,
) -> Result<bool, Error> {
    let sql = names.sql(&sql!("delete from {table} where message_id = ?1 and queue = ?2", table));
    let removed = sql.query().bind(id).bind(queue).execute(connection).await.map_err(store_error)?;
    Ok(removed.rows_affected() > 0)
}

/// Unblocks a key, so that it may run now.
pub(super) async fn release_key(
    write: &mut Write,
    names: &SqliteNames,
    queue: &QueueName,
    key: &OrderingKey,
    action: &Action,
) -> Result<bool, Error> {
    let now = write.now;
    let connection = &mut write.connection;
    let Some(queue) = queues::by_name(&mut *connection, names, queue).await? else { return Ok(false) };
    let sql = names.sql(&sql!(
        "update {lane} set due_at = null, reason = null, error = null where queue = ?1 and key = ?2 and due_at > ?3"
    ));
    let query = sql.query().bind(queue.number).bind(key.as_str()).bind(now);
    if query.execute(&mut *connection).await.map_err(store_error)?.rows_affected() == 0 {
        return Ok(false);
    }
    let sql = names.sql(&sql!(
        "update {ready} set due_at = min(due_at, ?3) where id = (select min(h.id) from {ready} h \
         where h.queue = ?1 and h.key = ?2 and h.ordered = 1)"
    ));
    let query = sql.query().bind(queue.number).bind(key.as_str()).bind(now);
    query.execute(&mut *connection).await.map_err(store_error)?;
    write_audit_row(connection, names, action, "release_key", Some(queue.number), &[], Some(key), now)
        .await?;
    queues::signal(connection, names, queue.has_idle_workers.then_some(queue.number)).await?;
    Ok(true)
}

#[expect(clippy::too_many_arguments, reason = "they are the columns of the row")]
pub(super) async fn write_audit_row(
    connection: &mut SqliteConnection,
    names: &SqliteNames,
    action: &Action,
    verb: &str,
    queue: Option<i64>,
    ids: &[MessageId],
    key: Option<&OrderingKey>,
    now: Micros,
) -> Result<(), Error> {
    let sql = names.sql(&sql!(
        "insert into {audit} (at, actor, why, verb, queue, message_ids, key) values (?1, ?2, ?3, ?4, ?5, ?6, ?7)"
    ));
    let query = sql.query().bind(now).bind(&action.actor).bind(&action.why).bind(verb).bind(queue);
    let query = query.bind(json(ids.iter().map(|id| Value::from(id.to_string()))));
    let query = query.bind(key.map(OrderingKey::as_str));
    query.execute(connection).await.map(|_| ()).map_err(store_error)
}
