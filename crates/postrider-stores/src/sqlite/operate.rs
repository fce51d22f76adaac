//! What operators change, each change with its audit row in the same transaction.

use super::{
    Names, SqliteStore, clue,
    each::each_place,
    error::store_error,
    evict, lanes,
    moment::Micros,
    page::table,
    prune, queues,
    row::{hex, json},
    selection::{self, Verb},
    writer::Write,
};
use async_trait::async_trait;
use postrider_core::{
    Error, Message, MessageId, OrderingKey, Pausable, QueueName, Staged, TimerName,
    inspect::{Action, Changed, Chunk, Operate, Room, Selection},
};
use serde_json::{Value, json};
use sqlx::{Row, SqliteConnection};
use std::time::Duration;
use uuid::Uuid;

const LETTERS: &str = "select min(j.key), d.message_id, d.id from json_each(?1) j \
    cross join {room} d on d.message_id = unhex(j.value) and d.queue = ?2 group by d.id order by 1";

/// Back under its identity, counted from zero, and no timer any more: another one may have taken the name.
const BACK: &str = "insert into {ready} (id, queue, message_id, ordered, fair, staged_at, due_at, key, event_type, \
      content_type, tenant, subject, headers, payload) \
    select j.place, d.queue, d.message_id, ?2, ?4, d.staged_at, ?3, \
      case when ?2 then coalesce(d.key, j.name) else nullif(d.key, j.name) end, d.event_type, \
      d.content_type, d.tenant, d.subject, d.headers, d.payload \
    from (select value ->> 0 as was, value ->> 1 as place, value ->> 2 as name from json_each(?1)) j \
    cross join {room} d on d.id = j.was";

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
        let requeued = put_back(&mut write, &self.inner.names, Room::Dead, queue, ids, action).await?;
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
    ) -> Result<Changed, Error> {
        selection::change_next(&self.inner, Verb::Requeue, selection, chunk, action).await
    }

    async fn discard_next(
        &self,
        selection: &Selection,
        chunk: &Chunk,
        action: &Action,
    ) -> Result<Changed, Error> {
        selection::change_next(&self.inner, Verb::Discard, selection, chunk, action).await
    }

    async fn replay(
        &self,
        queue: &QueueName,
        originals: &[MessageId],
        copies: &[Message],
        action: &Action,
    ) -> Result<Staged, Error> {
        action.check()?;
        let names = &self.inner.names;
        let mut write = self.inner.writer.begin(names).await?;
        // Whatever fails from here on drops the write, which undoes all of it.
        let staged = self.outbox().stage_on(&mut write.connection, copies).await?;
        if let Some(queue) = queues::named(&mut write.connection, names, queue).await? {
            let now = write.now;
            let connection = &mut write.connection;
            note(connection, names, action, "replay", Some(queue.number), originals, None, now).await?;
        }
        write.commit().await?;
        Ok(staged)
    }

    async fn drop_timer(&self, queue: &QueueName, timer: &TimerName, action: &Action) -> Result<bool, Error> {
        action.check()?;
        clue::drop_timer(&self.inner, queue, timer, action).await
    }

    async fn prune_audit(&self, age: Duration, most: usize, action: &Action) -> Result<u64, Error> {
        action.check()?;
        let mut write = self.inner.writer.begin(&self.inner.names).await?;
        let removed = prune::audit(&mut write, &self.inner.names, age, most, action).await?;
        write.commit().await?;
        Ok(removed)
    }
}

/// Puts dead letters, or what is kept, back: at the tail, or, where order matters, in their old places, so that the key's newer messages
/// still run after them.
pub(super) async fn put_back(
    write: &mut Write,
    names: &Names,
    room: Room,
    queue: &QueueName,
    ids: &[MessageId],
    action: &Action,
) -> Result<Vec<MessageId>, Error> {
    let now = write.now;
    let connection = &mut write.connection;
    let Some(queue) = queues::named(&mut *connection, names, queue).await? else { return Ok(Vec::new()) };
    let asked = json(ids.iter().map(|id| hex(id.as_uuid())));
    let of_room = |template: &str| template.replace("{room}", table(room));
    let letters = names.sql(&of_room(LETTERS));
    let letters = letters.query().bind(asked).bind(queue.number).fetch_all(&mut *connection).await;
    let mut requeued: Vec<(Uuid, i64)> = Vec::new();
    for row in letters.map_err(store_error)? {
        requeued.push((row.try_get(1).map_err(store_error)?, row.try_get(2).map_err(store_error)?));
    }
    if requeued.is_empty() {
        return Ok(Vec::new());
    }
    let (tail, _) = queues::draw(connection, names, requeued.len()).await?;
    let moves = requeued
        .iter()
        .zip(tail..)
        .map(|((id, was), tail)| json!([was, if queue.is_ordered() { *was } else { tail }, id.to_string()]));
    let sql = names.sql(&of_room(BACK));
    let query = sql.query().bind(json(moves)).bind(queue.is_ordered()).bind(now);
    let query = query.bind(queue.policy.fair_by_tenant);
    query.execute(&mut *connection).await.map_err(store_error)?;
    let places: Vec<_> = requeued.iter().map(|(_, was)| *was).collect();
    each_place(connection, names, &of_room("delete from {room} where id = ?"), &places).await?;
    if queue.is_ordered() {
        for (_, place) in &requeued {
            lanes::open(connection, names, *place..place + 1).await?;
        }
    }
    let requeued: Vec<_> = requeued.into_iter().map(|(id, _)| MessageId::from_uuid(id)).collect();
    let verb = if room == Room::Archive { "replay" } else { "requeue" };
    note(connection, names, action, verb, Some(queue.number), &requeued, None, now).await?;
    queues::signal(connection, names, queue.is_slept_on.then_some(queue.number)).await?;
    Ok(requeued)
}

/// Removes messages that are in nobody's hands.
pub(super) async fn discard(
    write: &mut Write,
    names: &Names,
    queue: &QueueName,
    ids: &[MessageId],
    action: &Action,
) -> Result<Vec<MessageId>, Error> {
    let now = write.now;
    let connection = &mut write.connection;
    let Some(queue) = queues::named(&mut *connection, names, queue).await? else { return Ok(Vec::new()) };
    let mut discarded = Vec::new();
    for id in ids {
        let uuid = id.as_uuid();
        if evict::living(connection, names, queue.number, uuid, now).await?
            || remove(connection, names, "{dead}", queue.number, uuid).await?
            || remove(connection, names, "{archive}", queue.number, uuid).await?
        {
            discarded.push(*id);
        }
    }
    if !discarded.is_empty() {
        note(connection, names, action, "discard", Some(queue.number), &discarded, None, now).await?;
    }
    Ok(discarded)
}

pub(super) async fn remove(
    connection: &mut SqliteConnection,
    names: &Names,
    room: &str,
    queue: i64,
    id: Uuid,
) -> Result<bool, Error> {
    let sql = names.sql(&format!("delete from {room} where message_id = ?1 and queue = ?2"));
    let removed = sql.query().bind(id).bind(queue).execute(connection).await.map_err(store_error)?;
    Ok(removed.rows_affected() > 0)
}

/// Lets a blocked key run now.
pub(super) async fn release_key(
    write: &mut Write,
    names: &Names,
    queue: &QueueName,
    key: &OrderingKey,
    action: &Action,
) -> Result<bool, Error> {
    let now = write.now;
    let connection = &mut write.connection;
    let Some(queue) = queues::named(&mut *connection, names, queue).await? else { return Ok(false) };
    let sql = names.sql(
        "update {lane} set due_at = null, reason = null, error = null where queue = ?1 and key = ?2 and due_at > ?3",
    );
    let query = sql.query().bind(queue.number).bind(key.as_str()).bind(now);
    if query.execute(&mut *connection).await.map_err(store_error)?.rows_affected() == 0 {
        return Ok(false);
    }
    let sql = names.sql(
        "update {ready} set due_at = min(due_at, ?3) where id = (select min(h.id) from {ready} h \
         where h.queue = ?1 and h.key = ?2 and h.ordered = 1)",
    );
    let query = sql.query().bind(queue.number).bind(key.as_str()).bind(now);
    query.execute(&mut *connection).await.map_err(store_error)?;
    note(connection, names, action, "release_key", Some(queue.number), &[], Some(key), now).await?;
    queues::signal(connection, names, queue.is_slept_on.then_some(queue.number)).await?;
    Ok(true)
}

#[expect(clippy::too_many_arguments, reason = "they are the columns of the row")]
pub(super) async fn note(
    connection: &mut SqliteConnection,
    names: &Names,
    action: &Action,
    verb: &str,
    queue: Option<i64>,
    ids: &[MessageId],
    key: Option<&OrderingKey>,
    now: Micros,
) -> Result<(), Error> {
    let sql = names.sql(
        "insert into {audit} (at, actor, why, verb, queue, message_ids, key) values (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
    );
    let query = sql.query().bind(now).bind(&action.actor).bind(&action.why).bind(verb).bind(queue);
    let query = query.bind(json(ids.iter().map(|id| Value::from(id.to_string()))));
    let query = query.bind(key.map(OrderingKey::as_str));
    query.execute(connection).await.map(|_| ()).map_err(store_error)
}
