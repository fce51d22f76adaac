//! Staging: on the caller's own connection, in the caller's own transaction.
//!
//! Either all messages of a call are staged or none, also when a statement fails or the future is dropped. There are two ways to
//! guarantee that. Plain messages, in a queue that exists and is not ordered, are staged by one statement, which SQLite itself
//! makes atomic. Its preparations (drawing positions, a notification for idle workers) are in the same text, because each text that
//! the driver runs goes to another thread and back, which costs more than most statements. Without the insert they do no harm: an
//! unused position, a needless wake-up. All other messages take a handful of statements, and a savepoint makes them atomic.
//!
//! The first statement writes. A transaction that begins with a read and writes afterwards fails immediately when another one has
//! written in between, and waiting does not help; a transaction whose first statement is a write waits for its turn. If the
//! caller has read before, only `BEGIN IMMEDIATE` helps, and the error says so.

use super::{
    SqliteNames,
    bulk_insert::{BulkInsert, MAX_BYTES},
    drivers::{Driver, DriverRow},
    queues::{self, Queue},
    row::{hex, json, sql_limit},
    statement::{Param, Statement},
    timers,
    timestamp::{self, Micros},
    writer::LockBackoff,
};
use crate::template::Template;
use postrider_core::{
    Due, Error, Limits, Message, MessageId, QueueName, StageOutcome, StageReport, TimerName, trace,
};
use serde_json::Value;
use std::{
    borrow::Cow,
    collections::{BTreeSet, HashSet},
    time::Duration,
};
use uuid::Uuid;

/// How long staging and admitting wait for other writers, if waiting helps.
pub(super) const BUSY_TIMEOUT: Duration = Duration::from_secs(30);

/// Stages messages in the caller's own transaction. Has no connection of its own, and is cheap to clone.
///
/// It is an [`Outbox`](postrider_core::Outbox) for the transactions of two drivers; each implementation below has an example.
///
/// | feature | stages in |
/// |---|---|
/// | `sqlite` | `sqlx::Transaction<'_, Sqlite>` |
/// | `sea-orm` | `sea_orm::DatabaseTransaction` |
#[derive(Debug, Clone, Default)]
pub struct SqliteOutbox {
    names: SqliteNames,
    limits: Limits,
}

impl SqliteOutbox {
    /// An outbox in the tables of `names`.
    pub fn new(names: SqliteNames) -> Self {
        Self::with_limits(names, Limits::default())
    }

    /// An outbox in the tables of `names`, with these size limits.
    pub fn with_limits(names: SqliteNames, limits: Limits) -> Self {
        Self { names, limits }
    }

    /// Stages plain messages in the open transaction. Returns `None`, and has staged nothing, if a message is not plain or the
    /// queue is ordered or does not exist yet.
    pub(super) async fn stage_in_one_statement(
        &self,
        driver: &mut impl Driver,
        messages: &[Message],
    ) -> Result<Option<StageReport>, Error> {
        let Some(first) = messages.first().filter(|first| is_plain(first, messages)) else { return Ok(None) };
        self.limits.check(messages)?;
        let messages = &*trace::stamped(messages);
        let ids: Vec<Uuid> = messages.iter().map(|_| Uuid::now_v7()).collect();
        let mut backoff = LockBackoff::for_duration(BUSY_TIMEOUT);
        let changed = loop {
            let (insert, params) = stage_statement(first.queue().as_str(), &ids, messages);
            let text = sql!(
                "{draw}; {signal}; {insert}",
                draw = sql!(DRAW_POSITIONS),
                signal = sql!(SIGNAL),
                insert
            );
            match driver.execute(Statement { params, ..self.names.statement(&text) }).await {
                Ok(changed) => break changed,
                // Only the first statement can find the lock taken, and its error stops the others.
                Err(failed) => backoff.wait_after(failed).await?,
            }
        };
        // If nothing was staged, no worker was notified and only the sequence of positions has changed.
        let is_staged = changed > 1;
        let outcomes = ids.into_iter().map(|id| (MessageId::from_uuid(id), StageOutcome::New));
        Ok(is_staged.then(|| StageReport::new(outcomes.collect())))
    }

    /// Stages on a connection with an open transaction. The caller provides the savepoint.
    pub(super) async fn stage_on(
        &self,
        driver: &mut impl Driver,
        messages: &[Message],
    ) -> Result<StageReport, Error> {
        if messages.is_empty() {
            return Ok(StageReport::default());
        }
        self.limits.check(messages)?;
        let messages = &*trace::stamped(messages);
        let names = &self.names;
        let (first_position, now) = draw_positions(driver, names, messages.len()).await?;
        let distinct: BTreeSet<&QueueName> = messages.iter().map(Message::queue).collect();
        let queues = queues::get_or_create(driver, names, &Vec::from_iter(distinct)).await?;
        let queue_of = |message: &Message| {
            queues
                .get(message.queue())
                .ok_or_else(|| Error::Other("a queue was deleted while messages were staged in it".into()))
        };
        let mut given = Vec::new();
        for message in messages {
            given.extend(message.id().map(|id| queue_of(message).map(|queue| (queue.number, id.as_uuid()))));
        }
        let mut known = known_ids(driver, names, given.into_iter().collect::<Result<_, _>>()?).await?;

        let (mut ready, mut scheduled) = (Vec::new(), Vec::new());
        let mut signalled = BTreeSet::new();
        let mut outcomes = Vec::with_capacity(messages.len());
        for (position, message) in (first_position..).zip(messages) {
            let queue = queue_of(message)?;
            let row = NewRow::new(message, queue, position, now);
            if !known.insert((queue.number, row.id)) {
                outcomes.push((MessageId::from_uuid(row.id), StageOutcome::Duplicate));
                continue;
            }
            let outcome = match message.timer() {
                Some(timer) => timers::stage(driver, names, &row, timer).await?,
                None => (row.id, StageOutcome::New),
            };
            if outcome.1 == StageOutcome::New {
                if row.is_due_now() && queue.has_idle_workers {
                    signalled.insert(queue.number);
                }
                if message.timer().is_none() {
                    if row.is_due_now() { &mut ready } else { &mut scheduled }.push(row);
                }
            } else {
                known.remove(&(queue.number, row.id));
            }
            outcomes.push((MessageId::from_uuid(outcome.0), outcome.1));
        }
        insert(driver, names, Target::Ready, &ready).await?;
        insert(driver, names, Target::Scheduled, &scheduled).await?;
        if ready.iter().any(|row| row.ordered) {
            let last_position = first_position + sql_limit(messages.len());
            super::lanes::open(driver, names, first_position..last_position).await?;
        }
        if !signalled.is_empty() {
            queues::signal(driver, names, signalled).await?;
        }
        Ok(StageReport::new(outcomes))
    }

    /// Cancels a timer on a connection with an open transaction.
    pub(super) async fn cancel_on(
        &self,
        driver: &mut impl Driver,
        queue: &QueueName,
        timer: &TimerName,
    ) -> Result<bool, Error> {
        let (_, now) = draw_positions(driver, &self.names, 0).await?;
        timers::cancel(driver, &self.names, queue, timer, now).await
    }
}

/// Draws positions, and waits for other writers if necessary. A statement that found the lock taken has changed nothing, so it can
/// be retried.
async fn draw_positions(
    driver: &mut impl Driver,
    names: &SqliteNames,
    count: usize,
) -> Result<(i64, Micros), Error> {
    let mut backoff = LockBackoff::for_duration(BUSY_TIMEOUT);
    loop {
        match queues::draw_positions(driver, names, count).await {
            Ok(drawn) => return Ok(drawn),
            Err(failed) => backoff.wait_after(failed).await?,
        }
    }
}

/// Whether these messages can be staged by one statement: new, due now, in one queue and small enough for one insert. Messages
/// with a key are left out, because their queue is probably ordered.
fn is_plain(first: &Message, messages: &[Message]) -> bool {
    let is_new = |message: &Message| message.id().is_none() && message.timer().is_none();
    let is_simple = |message: &Message| message.due() == Due::Now && message.key().is_none();
    messages.iter().all(|message| is_new(message) && is_simple(message) && message.queue() == first.queue())
        && messages.iter().map(|message| message.payload().len()).sum::<usize>() <= MAX_BYTES
}

/// Draws the positions of all messages.
const DRAW_POSITIONS: &str = "update {position} set last = last + ?1";

/// Notifies the idle workers of the queue when the transaction commits.
pub(super) const SIGNAL: &str = "update {queue} set signals = signals + 1 where name = ?2 and ordered = 0 \
    and exists (select 1 from {idle} s where s.queue = ?2 and s.until > {now})";

/// The insert of plain messages, and all parameters of its text.
pub(super) fn stage_statement<'p>(
    queue: &'p str,
    ids: &[Uuid],
    messages: &'p [Message],
) -> (Template, Vec<Param<'p>>) {
    let params = vec![sql_limit(messages.len()).into(), queue.into()];
    BulkInsert::new(params, ids.iter().copied().zip(messages))
        .computed("id", sql!("positions.last - ?1 + 1 + j.key"))
        .computed("queue", sql!("q.id"))
        .computed("fair", sql!("q.fair"))
        .computed("staged_at", sql!("{now}"))
        .computed("due_at", sql!("{now}"))
        .insert(
            &sql!("{ready}"),
            &sql!("{queue} q cross join {position} positions cross join"),
            &sql!("where q.name = ?2 and q.ordered = 0 and positions.id = 1"),
        )
}

pub(super) const KNOWN_IDS: &str = "select j.key from json_each(?1) j \
    where exists (select 1 from {ready} m where m.message_id = unhex(j.value ->> 1) and m.queue = j.value ->> 0) \
       or exists (select 1 from {scheduled} m where m.message_id = unhex(j.value ->> 1) and m.queue = j.value ->> 0) \
       or exists (select 1 from {dead} m where m.message_id = unhex(j.value ->> 1) and m.queue = j.value ->> 0) \
       or exists (select 1 from {archive} m where m.message_id = unhex(j.value ->> 1) and m.queue = j.value ->> 0)";

/// The given ids that are in one of the tables already.
async fn known_ids(
    driver: &mut impl Driver,
    names: &SqliteNames,
    given: Vec<(i64, Uuid)>,
) -> Result<HashSet<(i64, Uuid)>, Error> {
    let mut known = HashSet::new();
    if given.is_empty() {
        return Ok(known);
    }
    let requested =
        json(given.iter().map(|(queue, id)| Value::Array(vec![(*queue).into(), hex(*id).into()])));
    for row in driver.rows(names.statement(&sql!(KNOWN_IDS)).bind(requested)).await? {
        let index: i64 = row.get(0)?;
        known.extend(usize::try_from(index).ok().and_then(|index| given.get(index)));
    }
    Ok(known)
}

/// A message to be inserted into `ready` or `scheduled`.
#[derive(Debug)]
pub(super) struct NewRow<'m> {
    pub(super) id: Uuid,
    pub(super) position: i64,
    pub(super) queue: i64,
    pub(super) ordered: bool,
    fair: bool,
    /// On an ordered queue, a message without a key has a lane of its own, named by its id.
    pub(super) key: Option<Cow<'m, str>>,
    pub(super) staged_at: Micros,
    pub(super) due_at: Micros,
    pub(super) message: &'m Message,
}

impl<'m> NewRow<'m> {
    fn new(message: &'m Message, queue: &Queue, position: i64, now: Micros) -> Self {
        let id = message.id().map_or_else(Uuid::now_v7, |id| id.as_uuid());
        let key = message.key().map(|key| Cow::Borrowed(key.as_str()));
        Self {
            id,
            position,
            queue: queue.number,
            ordered: queue.is_ordered(),
            fair: queue.policy.fair_by_tenant,
            key: key.or_else(|| queue.is_ordered().then(|| id.to_string().into())),
            staged_at: now,
            due_at: match message.due() {
                Due::Now => now,
                Due::After(wait) => timestamp::after(now, wait),
                Due::At(at) => timestamp::from_system_time(at).max(now),
            },
            message,
        }
    }

    fn is_due_now(&self) -> bool {
        self.due_at <= self.staged_at
    }
}

/// The table of a new message.
#[derive(Debug, Clone, Copy)]
pub(super) enum Target {
    Ready,
    Scheduled,
}

/// Inserts messages into a table.
pub(super) async fn insert(
    driver: &mut impl Driver,
    names: &SqliteNames,
    target: Target,
    mut rows: &[NewRow<'_>],
) -> Result<(), Error> {
    while !rows.is_empty() {
        let mut bytes = 0;
        let mut fits = |row: &NewRow<'_>| {
            bytes += row.message.payload().len();
            bytes <= MAX_BYTES
        };
        let (chunk, rest) = rows.split_at(rows.iter().take_while(|row| fits(row)).count().max(1));
        let bulk_insert = BulkInsert::new(Vec::new(), chunk.iter().map(|row| (row.id, row.message)))
            .column("id", chunk.iter().map(|row| row.position))
            .column("queue", chunk.iter().map(|row| row.queue))
            .column("ordered", chunk.iter().map(|row| row.ordered))
            .column("staged_at", chunk.iter().map(|row| row.staged_at))
            .column("due_at", chunk.iter().map(|row| row.due_at))
            .column("key", chunk.iter().map(|row| row.key.as_deref()))
            .column("timer", chunk.iter().map(|row| row.message.timer().map(|timer| timer.name.as_str())));
        // Tenants take turns only in `ready`.
        let (bulk_insert, table) = match target {
            Target::Ready => (bulk_insert.column("fair", chunk.iter().map(|row| row.fair)), sql!("{ready}")),
            Target::Scheduled => (bulk_insert, sql!("{scheduled}")),
        };
        let (insert, params) = bulk_insert.insert(&table, &sql!(""), &sql!(""));
        driver.execute(Statement { params, ..names.statement(&insert) }).await?;
        rows = rest;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::{SqliteStore, drivers::DriverError};
    use super::*;
    use postrider_core::{MessageBuilder, schema::Schema};
    use sqlx::{Connection, SqliteConnection, sqlite::SqliteRow};
    use std::{ops::Range, path::Path, time::SystemTime};

    type Make = fn(usize) -> MessageBuilder;

    /// A connection that counts its statements.
    struct CountingDriver {
        connection: SqliteConnection,
        statements: usize,
    }

    impl Driver for CountingDriver {
        type Row = SqliteRow;

        async fn execute(&mut self, statement: Statement<'_>) -> Result<u64, DriverError> {
            self.statements += 1;
            self.connection.execute(statement).await
        }

        async fn rows(&mut self, statement: Statement<'_>) -> Result<Vec<SqliteRow>, DriverError> {
            self.statements += 1;
            self.connection.rows(statement).await
        }
    }

    impl CountingDriver {
        async fn open(folder: &Path) -> Self {
            let path = folder.join("shop.db");
            SqliteStore::open(&path).await.unwrap().migrate().await.unwrap();
            let url = format!("sqlite:{}", path.display());
            Self { connection: SqliteConnection::connect(&url).await.unwrap(), statements: 0 }
        }

        /// Stages, and returns how many statements the driver has run.
        async fn stage(&mut self, messages: &[Message]) -> usize {
            let before = self.statements;
            let outbox = SqliteOutbox::default();
            let staged = match outbox.stage_in_one_statement(self, messages).await.unwrap() {
                Some(staged) => staged,
                None => outbox.stage_on(self, messages).await.unwrap(),
            };
            assert_eq!(staged.new_messages(), messages.len());
            self.statements - before
        }
    }

    fn many(make: Make, numbers: Range<usize>) -> Vec<Message> {
        numbers.map(|number| make(number).build().unwrap()).collect()
    }

    /// There is no network round trip, but each text that the driver runs costs, too.
    #[tokio::test]
    async fn staging_takes_the_same_statements_for_any_batch_size() {
        let folder = tempfile::tempdir().unwrap();
        let mut driver = CountingDriver::open(folder.path()).await;
        let kinds: [(usize, Make); 5] = [
            (1, |number| Message::builder("orders").json(&number)),
            (3, |number| Message::builder(format!("queue-{}", number % 3)).json(&number)),
            (3, |number| Message::builder("orders").key(format!("key-{}", number % 7)).json(&number)),
            (4, |number| Message::builder("orders").id(MessageId::at(SystemTime::now())).json(&number)),
            (3, |number| Message::builder("orders").due_after(Duration::from_secs(60)).json(&number)),
        ];
        for (statements, make) in kinds {
            // The first call makes the queues.
            driver.stage(&many(make, 0..10)).await;
            assert_eq!(driver.stage(&many(make, 10..12)).await, statements);
            assert_eq!(driver.stage(&many(make, 100..1_100)).await, statements);
        }
        let timer: Make = |number| Message::builder("orders").timer(format!("{number}"));
        assert_eq!(driver.stage(&many(timer, 0..100)).await, 2 + 2 * 100, "each timer takes two statements");
    }

    /// The size of one insert is bounded.
    #[tokio::test]
    async fn staging_a_large_batch_takes_several_inserts() {
        let folder = tempfile::tempdir().unwrap();
        let mut driver = CountingDriver::open(folder.path()).await;
        driver.stage(&many(|_| Message::builder("orders"), 0..1)).await;
        let half: Make =
            |number| Message::builder("orders").payload(vec![u8::try_from(number).unwrap(); MAX_BYTES / 2]);
        assert_eq!(driver.stage(&many(half, 0..2)).await, 1);
        assert_eq!(driver.stage(&many(half, 2..7)).await, 2 + 3, "draw, queues, and two messages each");
        let sql = "select count(*), count(distinct substr(payload, -1)) from postrider_ready \
            where length(payload) = 8388608";
        let row = sqlx::query(sql).fetch_one(&mut driver.connection).await.unwrap();
        assert_eq!(
            (DriverRow::get::<i64>(&row, 0).unwrap(), DriverRow::get::<i64>(&row, 1).unwrap()),
            (7, 7)
        );
    }
}
