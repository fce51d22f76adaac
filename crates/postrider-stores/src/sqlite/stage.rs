//! Staging: on the caller's own connection, in the caller's own transaction.
//!
//! A call is a handful of statements, not one: SQLite runs in this process, and there is no network to save. A savepoint makes
//! them one: whatever fails, and wherever the future is dropped, either all messages of the call are staged or none.
//!
//! The first statement writes. A transaction that begins with a read and writes later fails at once when somebody else has
//! written in between, and no waiting helps; one whose first statement is a write just waits its turn. Where the caller has
//! read before, only `BEGIN IMMEDIATE` helps, and the error says so.

use super::{
    Names,
    drivers::{Cells, Driver},
    each::SIZES,
    moment::{self, Micros},
    queues::{self, Queue},
    row::{hex, json},
    timers,
    writer::Pauses,
};
use crate::envelope;
use postrider_core::{
    Due, Error, Fate, Limits, Message, MessageId, QueueName, Staged, TimerName,
    message::DEFAULT_CONTENT_TYPE, trace,
};
use serde_json::Value;
use std::{
    borrow::Cow,
    collections::{BTreeSet, HashSet},
    time::Duration,
};
use uuid::Uuid;

/// How long staging waits for other writers, where waiting helps.
const PATIENCE: Duration = Duration::from_secs(30);

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
            let last_place = first_place + super::row::limit(messages.len());
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
            Err(failed) if failed.is_busy && pauses.pause().await => {}
            Err(failed) => return Err(failed.error),
        }
    }
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

    pub(super) fn content_type(&self) -> Option<&'m str> {
        Some(self.message.content_type()).filter(|content_type| *content_type != DEFAULT_CONTENT_TYPE)
    }
}

const COLUMNS: &str = "id, queue, message_id, ordered, staged_at, due_at, key, timer, event_type, content_type, tenant, \
    subject, headers, payload";

/// Puts messages into a room.
pub(super) async fn insert(
    driver: &mut impl Driver,
    names: &Names,
    room: &str,
    mut fresh: &[Fresh<'_>],
) -> Result<(), Error> {
    // Only what stands in a line has a turn.
    let stands = room == "{ready}";
    let (columns, value) = match stands {
        true => (format!("{COLUMNS}, fair"), "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"),
        false => (COLUMNS.to_owned(), "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"),
    };
    while let Some(size) = SIZES.into_iter().find(|size| *size <= fresh.len()) {
        let (chunk, rest) = fresh.split_at(size);
        let values = vec![value; size].join(", ");
        let mut insert = names.statement(&format!("insert into {room} ({columns}) values {values}"));
        for row in chunk {
            let message = row.message;
            insert = insert
                .bind(row.place)
                .bind(row.queue)
                .bind(row.id)
                .bind(row.ordered)
                .bind(row.staged_at)
                .bind(row.due_at)
                .bind(row.key.as_deref())
                .bind(message.timer().map(|timer| timer.name.as_str()))
                .bind(message.event_type().map(postrider_core::EventType::as_str))
                .bind(row.content_type())
                .bind(message.tenant().map(postrider_core::TenantId::as_str))
                .bind(message.subject().map(postrider_core::SubjectId::as_str))
                .bind(envelope::encode(message))
                .bind(message.payload().as_ref());
            if stands {
                insert = insert.bind(row.fair);
            }
        }
        driver.execute(insert).await?;
        fresh = rest;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::{SqliteStore, drivers::Failed, statement::Statement};
    use super::*;
    use postrider_core::{MessageBuilder, schema::Schema};
    use sqlx::{Connection, SqliteConnection, sqlite::SqliteRow};
    use std::time::SystemTime;

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
        async fn stage(
            &mut self,
            make: fn(usize) -> MessageBuilder,
            numbers: std::ops::Range<usize>,
        ) -> usize {
            let messages: Vec<Message> = numbers.map(|number| make(number).build().unwrap()).collect();
            let before = self.statements;
            let staged = SqliteOutbox::default().stage_on(self, &messages).await.unwrap();
            assert_eq!(staged.new_messages(), messages.len());
            self.statements - before
        }
    }

    /// There is no network to save, but each statement costs, too: a thousand messages take as many as one does, and the
    /// inserts that hold them.
    #[tokio::test]
    async fn a_thousand_messages_take_the_statements_of_one_and_their_inserts() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("shop.db");
        SqliteStore::open(&path).await.unwrap().migrate().await.unwrap();
        let url = format!("sqlite:{}", path.display());
        let mut driver =
            Counted { connection: SqliteConnection::connect(&url).await.unwrap(), statements: 0 };
        let kinds: [fn(usize) -> MessageBuilder; 4] = [
            |number| Message::builder("orders").json(&number),
            |number| Message::builder(format!("queue-{}", number % 3)).json(&number),
            |number| Message::builder("orders").id(MessageId::at(SystemTime::now())).json(&number),
            |number| Message::builder("orders").due_after(Duration::from_secs(60)).json(&number),
        ];
        for make in kinds {
            // The first call makes the queues.
            driver.stage(make, 0..10).await;
            let one = driver.stage(make, 10..11).await;
            let thousand = driver.stage(make, 100..1_100).await;
            assert!(one <= 4, "draw, queues, known identities, insert: {one}");
            assert_eq!(thousand - one, 1_000 / 64 + 1_000 % 64 / 8 - 1);
        }
        let timer: fn(usize) -> MessageBuilder =
            |number| Message::builder("orders").timer(format!("{number}"));
        assert_eq!(driver.stage(timer, 0..100).await, 2 + 2 * 100, "each timer is looked at for itself");
    }
}
