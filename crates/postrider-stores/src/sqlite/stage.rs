//! Staging: on the caller's own connection, in the caller's own transaction.
//!
//! Whatever fails, and wherever the future is dropped, either all messages of the call are staged or none. There are two ways to
//! see to that. Messages that ask for nothing special, in a queue that exists and is not ordered, are staged at once: by one
//! statement, which SQLite itself makes all or nothing. What must go before it (drawing places, a signal for sleepers) goes in
//! the same text, since each text that the driver runs goes to another thread and back, which costs more than most statements.
//! Left alone it does no harm: a place that nobody has, a look for nothing. Everything else is a handful of statements, and a
//! savepoint makes them one.
//!
//! The first statement writes. A transaction that begins with a read and writes later fails at once when somebody else has
//! written in between, and no waiting helps; one whose first statement is a write just waits its turn. Where the caller has
//! read before, only `BEGIN IMMEDIATE` helps, and the error says so.

use super::{
    Names,
    drivers::{Cells, Driver},
    moment::{self, Micros},
    queues::{self, Queue},
    row::{hex, json, limit},
    rows::{MOST_BYTES, Rows},
    statement::{Param, Statement},
    timers,
    writer::Pauses,
};
use postrider_core::{Due, Error, Fate, Limits, Message, MessageId, QueueName, Staged, TimerName, trace};
use serde_json::Value;
use std::{
    borrow::Cow,
    collections::{BTreeSet, HashSet},
    time::Duration,
};
use uuid::Uuid;

/// How long staging and admitting wait for other writers, where waiting helps.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// Stages messages in the caller's own transaction. Needs no connection of its own, and is cheap to clone.
///
/// It is an [`Outbox`](postrider_core::Outbox) for the transactions of two drivers; each implementation below has an example.
///
/// | feature | stages in |
/// |---|---|
/// | `sqlite` | `sqlx::Transaction<'_, Sqlite>` |
/// | `sea-orm` | `sea_orm::DatabaseTransaction` |
#[derive(Debug, Clone, Default)]
pub struct SqliteOutbox {
    names: Names,
    limits: Limits,
}

impl SqliteOutbox {
    /// Stages in the tables of `names`.
    pub fn new(names: Names) -> Self {
        Self::with_limits(names, Limits::default())
    }

    /// Stages in the tables of `names`, within `limits`.
    pub fn with_limits(names: Names, limits: Limits) -> Self {
        Self { names, limits }
    }

    /// Stages messages that ask for nothing special, in whatever transaction is open. Answers `None`, and has staged nothing,
    /// where they do, or where their queue is ordered or not there yet.
    pub(super) async fn stage_at_once(
        &self,
        driver: &mut impl Driver,
        messages: &[Message],
    ) -> Result<Option<Staged>, Error> {
        let Some(first) = messages.first().filter(|first| is_plain(first, messages)) else { return Ok(None) };
        self.limits.check(messages)?;
        let messages = &*trace::stamped(messages);
        let ids: Vec<Uuid> = messages.iter().map(|_| Uuid::now_v7()).collect();
        let mut pauses = Pauses::lasting(PATIENCE);
        let changed = loop {
            let (insert, params) = at_once(first.queue().as_str(), &ids, messages);
            let text = format!("{DRAW}; {SIGNAL}; {insert}");
            match driver.execute(Statement { params, ..self.names.statement(&text) }).await {
                Ok(changed) => break changed,
                // What found the lock taken is the first statement, and it has stopped the others.
                Err(failed) => pauses.after(failed).await?,
            }
        };
        // Where nothing is staged nobody is woken, and nothing but the line has changed.
        let is_staged = changed > 1;
        let fates = ids.into_iter().map(|id| (MessageId::from_uuid(id), Fate::New));
        Ok(is_staged.then(|| Staged::new(fates.collect())))
    }

    /// Stages on a connection with an open transaction, in which it is one step of its own.
    pub(super) async fn stage_on(
        &self,
        driver: &mut impl Driver,
        messages: &[Message],
    ) -> Result<Staged, Error> {
        if messages.is_empty() {
            return Ok(Staged::default());
        }
        self.limits.check(messages)?;
        let messages = &*trace::stamped(messages);
        let names = &self.names;
        let (first_place, now) = draw(driver, names, messages.len()).await?;
        let distinct: BTreeSet<&QueueName> = messages.iter().map(Message::queue).collect();
        let queues = queues::used(driver, names, &Vec::from_iter(distinct)).await?;
        let queue_of = |message: &Message| {
            queues
                .get(message.queue())
                .ok_or_else(|| Error::Other("a queue vanished while it was used".into()))
        };
        let mut given = Vec::new();
        for message in messages {
            given.extend(message.id().map(|id| queue_of(message).map(|queue| (queue.number, id.as_uuid()))));
        }
        let mut known = known(driver, names, given.into_iter().collect::<Result<_, _>>()?).await?;

        let (mut ready, mut later) = (Vec::new(), Vec::new());
        let mut signalled = BTreeSet::new();
        let mut fates = Vec::with_capacity(messages.len());
        for (place, message) in (first_place..).zip(messages) {
            let queue = queue_of(message)?;
            let fresh = Fresh::new(message, queue, place, now);
            if !known.insert((queue.number, fresh.id)) {
                fates.push((MessageId::from_uuid(fresh.id), Fate::Duplicate));
                continue;
            }
            let fate = match message.timer() {
                Some(timer) => timers::stage(driver, names, &fresh, timer).await?,
                None => (fresh.id, Fate::New),
            };
            if fate.1 == Fate::New {
                if fresh.is_due_at_once() && queue.is_slept_on {
                    signalled.insert(queue.number);
                }
                if message.timer().is_none() {
                    if fresh.is_due_at_once() { &mut ready } else { &mut later }.push(fresh);
                }
            } else {
                known.remove(&(queue.number, fresh.id));
            }
            fates.push((MessageId::from_uuid(fate.0), fate.1));
        }
        insert(driver, names, "{ready}", &ready).await?;
        insert(driver, names, "{later}", &later).await?;
        if ready.iter().any(|fresh| fresh.ordered) {
            let last_place = first_place + limit(messages.len());
            super::lanes::open(driver, names, first_place..last_place).await?;
        }
        if !signalled.is_empty() {
            queues::signal(driver, names, signalled).await?;
        }
        Ok(Staged::new(fates))
    }

    /// Cancels a timer on a connection with an open transaction.
    pub(super) async fn cancel_on(
        &self,
        driver: &mut impl Driver,
        queue: &QueueName,
        timer: &TimerName,
    ) -> Result<bool, Error> {
        let (_, now) = draw(driver, &self.names, 0).await?;
        timers::cancel(driver, &self.names, queue, timer, now).await
    }
}

/// Draws places, and waits for other writers to do so. A statement that found the lock taken has changed nothing, so it may
/// try again.
async fn draw(driver: &mut impl Driver, names: &Names, count: usize) -> Result<(i64, Micros), Error> {
    let mut pauses = Pauses::lasting(PATIENCE);
    loop {
        match queues::draw(driver, names, count).await {
            Ok(drawn) => return Ok(drawn),
            Err(failed) => pauses.after(failed).await?,
        }
    }
}

/// Whether these messages can be staged by one statement: new, due now, in one queue and of a size that one insert takes. A
/// key is most likely there for the order that its queue keeps.
fn is_plain(first: &Message, messages: &[Message]) -> bool {
    let is_new = |message: &Message| message.id().is_none() && message.timer().is_none();
    let is_simple = |message: &Message| message.due() == Due::Now && message.key().is_none();
    messages.iter().all(|message| is_new(message) && is_simple(message) && message.queue() == first.queue())
        && messages.iter().map(|message| message.payload().len()).sum::<usize>() <= MOST_BYTES
}

/// Draws the places of all messages.
const DRAW: &str = "update {line} set last = last + ?1";

/// Wakes those who sleep for the queue, once the transaction commits.
pub(super) const SIGNAL: &str = "update {queue} set signals = signals + 1 where name = ?2 and ordered = 0 \
    and exists (select 1 from {sleeper} s where s.queue = ?2 and s.until > {now})";

/// Stages plain messages. It is the last statement of its text, and the only one that stages.
pub(super) fn at_once<'p>(queue: &'p str, ids: &[Uuid], messages: &'p [Message]) -> (String, Vec<Param<'p>>) {
    let params = vec![limit(messages.len()).into(), queue.into()];
    Rows::new(params, ids.iter().copied().zip(messages))
        .computed("id", "places.last - ?1 + 1 + j.key")
        .computed("queue", "q.id")
        .computed("fair", "q.fair")
        .computed("staged_at", "{now}")
        .computed("due_at", "{now}")
        .insert(
            "{ready}",
            "{queue} q cross join {line} places cross join",
            "where q.name = ?2 and q.ordered = 0 and places.id = 1",
        )
}

pub(super) const KNOWN: &str = "select j.key from json_each(?1) j \
    where exists (select 1 from {ready} m where m.message_id = unhex(j.value ->> 1) and m.queue = j.value ->> 0) \
       or exists (select 1 from {later} m where m.message_id = unhex(j.value ->> 1) and m.queue = j.value ->> 0) \
       or exists (select 1 from {dead} m where m.message_id = unhex(j.value ->> 1) and m.queue = j.value ->> 0) \
       or exists (select 1 from {archive} m where m.message_id = unhex(j.value ->> 1) and m.queue = j.value ->> 0)";

/// Those of the given identities that are in some room already.
async fn known(
    driver: &mut impl Driver,
    names: &Names,
    given: Vec<(i64, Uuid)>,
) -> Result<HashSet<(i64, Uuid)>, Error> {
    let mut known = HashSet::new();
    if given.is_empty() {
        return Ok(known);
    }
    let asked = json(given.iter().map(|(queue, id)| Value::Array(vec![(*queue).into(), hex(*id).into()])));
    for row in driver.rows(names.statement(KNOWN).bind(asked)).await? {
        let index: i64 = row.get(0)?;
        known.extend(usize::try_from(index).ok().and_then(|index| given.get(index)));
    }
    Ok(known)
}

/// A message on its way into a room.
#[derive(Debug)]
pub(super) struct Fresh<'m> {
    pub(super) id: Uuid,
    pub(super) place: i64,
    pub(super) queue: i64,
    pub(super) ordered: bool,
    fair: bool,
    /// On an ordered queue, a message without a key is a line of its own.
    pub(super) key: Option<Cow<'m, str>>,
    pub(super) staged_at: Micros,
    pub(super) due_at: Micros,
    pub(super) message: &'m Message,
}

impl<'m> Fresh<'m> {
    fn new(message: &'m Message, queue: &Queue, place: i64, now: Micros) -> Self {
        let id = message.id().map_or_else(Uuid::now_v7, |id| id.as_uuid());
        let key = message.key().map(|key| Cow::Borrowed(key.as_str()));
        Self {
            id,
            place,
            queue: queue.number,
            ordered: queue.is_ordered(),
            fair: queue.policy.fair_by_tenant,
            key: key.or_else(|| queue.is_ordered().then(|| id.to_string().into())),
            staged_at: now,
            due_at: match message.due() {
                Due::Now => now,
                Due::After(wait) => moment::after(now, wait),
                Due::At(at) => moment::of(at).max(now),
            },
            message,
        }
    }

    fn is_due_at_once(&self) -> bool {
        self.due_at <= self.staged_at
    }
}

/// Puts messages into a room.
pub(super) async fn insert(
    driver: &mut impl Driver,
    names: &Names,
    room: &str,
    mut fresh: &[Fresh<'_>],
) -> Result<(), Error> {
    while !fresh.is_empty() {
        let mut bytes = 0;
        let mut fits = |row: &Fresh<'_>| {
            bytes += row.message.payload().len();
            bytes <= MOST_BYTES
        };
        let (chunk, rest) = fresh.split_at(fresh.iter().take_while(|row| fits(row)).count().max(1));
        let rows = Rows::new(Vec::new(), chunk.iter().map(|row| (row.id, row.message)))
            .column("id", chunk.iter().map(|row| row.place))
            .column("queue", chunk.iter().map(|row| row.queue))
            .column("ordered", chunk.iter().map(|row| row.ordered))
            .column("staged_at", chunk.iter().map(|row| row.staged_at))
            .column("due_at", chunk.iter().map(|row| row.due_at))
            .column("key", chunk.iter().map(|row| row.key.as_deref()))
            .column("timer", chunk.iter().map(|row| row.message.timer().map(|timer| timer.name.as_str())));
        // Only what stands in a line has a turn.
        let rows = match room {
            "{ready}" => rows.column("fair", chunk.iter().map(|row| row.fair)),
            _ => rows,
        };
        let (insert, params) = rows.insert(room, "", "");
        driver.execute(Statement { params, ..names.statement(&insert) }).await?;
        fresh = rest;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::{SqliteStore, drivers::Failed};
    use super::*;
    use postrider_core::{MessageBuilder, schema::Schema};
    use sqlx::{Connection, SqliteConnection, sqlite::SqliteRow};
    use std::{ops::Range, path::Path, time::SystemTime};

    type Make = fn(usize) -> MessageBuilder;

    /// A connection whose statements are counted.
    struct Counted {
        connection: SqliteConnection,
        statements: usize,
    }

    impl Driver for Counted {
        type Row = SqliteRow;

        async fn execute(&mut self, statement: Statement<'_>) -> Result<u64, Failed> {
            self.statements += 1;
            self.connection.execute(statement).await
        }

        async fn rows(&mut self, statement: Statement<'_>) -> Result<Vec<SqliteRow>, Failed> {
            self.statements += 1;
            self.connection.rows(statement).await
        }
    }

    impl Counted {
        async fn open(folder: &Path) -> Self {
            let path = folder.join("shop.db");
            SqliteStore::open(&path).await.unwrap().migrate().await.unwrap();
            let url = format!("sqlite:{}", path.display());
            Self { connection: SqliteConnection::connect(&url).await.unwrap(), statements: 0 }
        }

        /// Stages, and answers how often the driver was asked to run something.
        async fn stage(&mut self, messages: &[Message]) -> usize {
            let before = self.statements;
            let outbox = SqliteOutbox::default();
            let staged = match outbox.stage_at_once(self, messages).await.unwrap() {
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

    /// There is no network to save, but whatever the driver runs costs, too.
    #[tokio::test]
    async fn a_thousand_messages_take_the_statements_of_two() {
        let folder = tempfile::tempdir().unwrap();
        let mut driver = Counted::open(folder.path()).await;
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
        assert_eq!(
            driver.stage(&many(timer, 0..100)).await,
            2 + 2 * 100,
            "each timer is looked at for itself"
        );
    }

    /// What is copied at once is bounded.
    #[tokio::test]
    async fn a_batch_of_many_bytes_takes_several_inserts() {
        let folder = tempfile::tempdir().unwrap();
        let mut driver = Counted::open(folder.path()).await;
        driver.stage(&many(|_| Message::builder("orders"), 0..1)).await;
        let half: Make =
            |number| Message::builder("orders").payload(vec![u8::try_from(number).unwrap(); MOST_BYTES / 2]);
        assert_eq!(driver.stage(&many(half, 0..2)).await, 1);
        assert_eq!(driver.stage(&many(half, 2..7)).await, 2 + 3, "draw, queues, and two messages each");
        let sql = "select count(*), count(distinct substr(payload, -1)) from postrider_ready \
            where length(payload) = 8388608";
        let row = sqlx::query(sql).fetch_one(&mut driver.connection).await.unwrap();
        assert_eq!((Cells::get::<i64>(&row, 0).unwrap(), Cells::get::<i64>(&row, 1).unwrap()), (7, 7));
    }
}
