//! Staging: one statement on the caller's own connection.
//!
//! Two statements serve. The **plain** one takes messages that are due now, have no timer and get their id from us: a bare
//! `INSERT … SELECT … FROM unnest`, with only the columns that the batch uses, since each array costs time. It inserts
//! nothing when one of the queues does not exist yet. The **careful** one is a function of the database and takes
//! everything: given ids (they may be known already), times, timers, new queues.
//!
//! Waking is part of both: workers that announced that they sleep are signalled, nobody else (`wake.rs`).

use super::{Names, error::store_error, names::Sql};
use crate::envelope;
use postrider_core::{
    Due, Error, Fate, Invalid, Limits, Message, MessageId, OnConflict, Outbox, QueueName, Staged, TimerName,
};
use sqlx::{PgConnection, Postgres, Row, Transaction};
use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, PoisonError},
};
use time::OffsetDateTime;
use uuid::Uuid;

/// Stages messages in a transaction of sqlx. Needs no connection of its own, and is cheap to clone.
///
/// ```no_run
/// use postrider_core::{Message, OutboxExt};
/// use postrider_stores::postgres::PostgresOutbox;
///
/// # async fn run(pool: sqlx::PgPool) -> Result<(), Box<dyn std::error::Error>> {
/// let outbox = PostgresOutbox::default();
/// let mut tx = pool.begin().await?;
/// sqlx::query("insert into orders (id) values (17)").execute(&mut *tx).await?;
/// outbox.stage(&mut tx, Message::builder("orders").json(&17)).await?;
/// tx.commit().await?; // both, or neither
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, Default)]
pub struct PostgresOutbox {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    names: Names,
    limits: Limits,
    plain: Mutex<HashMap<Shape, Sql>>,
}

impl PostgresOutbox {
    /// Stages in the tables of `names`.
    pub fn new(names: Names) -> Self {
        Self::with_limits(names, Limits::default())
    }

    /// Stages in the tables of `names`, within `limits`.
    pub fn with_limits(names: Names, limits: Limits) -> Self {
        Self { shared: Arc::new(Shared { names, limits, plain: Mutex::default() }) }
    }

    async fn stage_on(&self, connection: &mut PgConnection, messages: &[Message]) -> Result<Staged, Error> {
        if messages.is_empty() {
            return Ok(Staged::default());
        }
        self.shared.limits.check(messages)?;
        let ids: Vec<Uuid> = messages
            .iter()
            .map(|message| message.id().map_or_else(Uuid::now_v7, |id| id.as_uuid()))
            .collect();
        let plain = messages
            .iter()
            .all(|message| message.id().is_none() && message.due() == Due::Now && message.timer().is_none());
        if plain && self.stage_plain(connection, messages, &ids).await? {
            let fates = ids.into_iter().map(|id| (MessageId::from_uuid(id), Fate::New)).collect();
            return Ok(Staged::new(fates));
        }
        self.stage_careful(connection, messages, ids).await
    }

    /// Answers `false`, and has changed nothing, when a queue does not exist yet.
    async fn stage_plain(
        &self,
        connection: &mut PgConnection,
        messages: &[Message],
        ids: &[Uuid],
    ) -> Result<bool, Error> {
        let (queues, positions) = queues(messages)?;
        let columns = Columns::of(messages);
        let sql = self.plain_statement(columns.shape());
        let mut query = sql.query().bind(queues).bind(positions).bind(ids).bind(payloads(messages));
        for (_, values) in columns.used() {
            query = query.bind(values);
        }
        let inserted = query.execute(connection).await.map_err(store_error)?.rows_affected();
        Ok(inserted > 0)
    }

    fn plain_statement(&self, shape: Shape) -> Sql {
        let mut cache = self.shared.plain.lock().unwrap_or_else(PoisonError::into_inner);
        cache.entry(shape).or_insert_with(|| self.shared.names.sql(&plain_template(shape))).clone()
    }

    async fn stage_careful(
        &self,
        connection: &mut PgConnection,
        messages: &[Message],
        ids: Vec<Uuid>,
    ) -> Result<Staged, Error> {
        // The same identity twice in one batch: the second is a duplicate of the first.
        let mut seen = HashSet::with_capacity(messages.len());
        let mut fates: Vec<_> = ids.into_iter().map(|id| (MessageId::from_uuid(id), Fate::New)).collect();
        let mut sent = Vec::with_capacity(messages.len());
        for (index, message) in messages.iter().enumerate() {
            if seen.insert((message.queue(), fates[index].0)) {
                sent.push(index);
            } else {
                fates[index].1 = Fate::Duplicate;
            }
        }
        let given: Vec<&Message> = sent.iter().map(|index| &messages[*index]).collect();
        let (queues, positions) = queues(given.iter().copied())?;
        let columns = Columns::of(given.iter().copied());
        let sql = self.shared.names.sql(CAREFUL);
        let mut query = sql
            .query()
            .bind(queues)
            .bind(positions)
            .bind(sent.iter().map(|index| fates[*index].0.as_uuid()).collect::<Vec<_>>())
            .bind(given.iter().map(|message| message.id().is_some()).collect::<Vec<_>>())
            .bind(given.iter().map(|message| due_after(message)).collect::<Vec<_>>())
            .bind(given.iter().map(|message| due_at(message)).collect::<Vec<_>>())
            .bind(given.iter().map(|message| Some(message.timer()?.name.as_str())).collect::<Vec<_>>())
            .bind(given.iter().map(|message| extends(message)).collect::<Vec<_>>())
            .bind(payloads(given.iter().copied()));
        for (_, values) in columns.all() {
            query = query.bind(values);
        }
        for row in query.fetch_all(connection).await.map_err(store_error)? {
            let position: i32 = row.try_get(0).map_err(store_error)?;
            let fate = match row.try_get::<&str, _>(1).map_err(store_error)? {
                "ignored" => Fate::Ignored,
                "extended" => Fate::Extended,
                _ => Fate::Duplicate,
            };
            let id: Uuid = row.try_get(2).map_err(store_error)?;
            let index =
                usize::try_from(position).ok().and_then(|position| sent.get(position.wrapping_sub(1)));
            if let Some(index) = index {
                fates[*index] = (MessageId::from_uuid(id), fate);
            }
        }
        Ok(Staged::new(fates))
    }
}

impl<'t> Outbox<Transaction<'t, Postgres>> for PostgresOutbox {
    async fn stage_all(
        &self,
        tx: &mut Transaction<'t, Postgres>,
        messages: &[Message],
    ) -> Result<Staged, Error> {
        self.stage_on(&mut *tx, messages).await
    }

    async fn cancel_timer(
        &self,
        tx: &mut Transaction<'t, Postgres>,
        queue: &QueueName,
        timer: &TimerName,
    ) -> Result<bool, Error> {
        let sql = self.shared.names.sql("select {cancel_timer}($1, $2)");
        let row = sql.query().bind(queue.as_str()).bind(timer.as_str()).fetch_one(&mut **tx).await;
        row.and_then(|row| row.try_get(0)).map_err(store_error)
    }
}

const CAREFUL: &str = "select n, fate, id from {stage}($1::text[], $2::smallint[], $3::uuid[], $4::boolean[], \
    $5::double precision[], $6::timestamptz[], $7::text[], $8::boolean[], $9::bytea[], $10::text[], $11::text[], \
    $12::text[], $13::text[], $14::text[], $15::text[])";

/// Which optional columns a batch uses, as bits in the order of [`OPTIONAL`].
type Shape = u8;

/// The optional columns, in the order of the careful statement's arguments.
const OPTIONAL: [&str; 6] = ["event_type", "content_type", "key", "tenant", "subject", "headers"];
const KEY: usize = 2;

/// The optional columns of a batch.
struct Columns<'m>([Vec<Option<std::borrow::Cow<'m, str>>>; 6]);

impl<'m> Columns<'m> {
    fn of(messages: impl IntoIterator<Item = &'m Message>) -> Self {
        let mut columns: [Vec<_>; 6] = Default::default();
        for message in messages {
            let content_type = message.content_type();
            let values = [
                message.event_type().map(|event_type| event_type.as_str().into()),
                (content_type != postrider_core::message::DEFAULT_CONTENT_TYPE).then(|| content_type.into()),
                message.key().map(|key| key.as_str().into()),
                message.tenant().map(|tenant| tenant.as_str().into()),
                message.subject().map(|subject| subject.as_str().into()),
                envelope::encode(message).map(Into::into),
            ];
            for (column, value) in columns.iter_mut().zip(values) {
                column.push(value);
            }
        }
        Self(columns)
    }

    fn shape(&self) -> Shape {
        let used = self.0.iter().map(|column| column.iter().any(Option::is_some));
        used.enumerate().fold(0, |shape, (bit, used)| shape | (Shape::from(used) << bit))
    }

    fn used(self) -> impl Iterator<Item = (usize, Vec<Option<std::borrow::Cow<'m, str>>>)> {
        let shape = self.shape();
        self.all().filter(move |(column, _)| shape & (1 << column) != 0)
    }

    fn all(self) -> impl Iterator<Item = (usize, Vec<Option<std::borrow::Cow<'m, str>>>)> {
        self.0.into_iter().enumerate()
    }
}

/// No join and no sort stands between `unnest` and the table, so places are drawn in the order given. Queues are looked up
/// once per statement; where one is missing the whole statement inserts nothing.
fn plain_template(shape: Shape) -> String {
    let used: Vec<_> = (0..OPTIONAL.len()).filter(|column| shape & (1 << column) != 0).collect();
    let mut into = String::new();
    let mut select = String::new();
    let mut unnest = String::new();
    let mut alias = String::new();
    for (index, column) in used.iter().enumerate() {
        let name = OPTIONAL[*column];
        unnest.push_str(&format!(", ${}::text[]", index + 5));
        alias.push_str(&format!(", {name}"));
        if *column != KEY {
            into.push_str(&format!(", {name}"));
            select.push_str(&format!(", u.{name}{}", if name == "headers" { "::jsonb" } else { "" }));
        }
    }
    let key = if used.contains(&KEY) { "u.key" } else { "null::text" };
    format!(
        "insert into {{ready}} (queue, ordered, key, message_id, payload{into}) \
         select k.id[u.queue], k.ordered[u.queue], \
                case when k.ordered[u.queue] then coalesce({key}, u.message_id::text) else {key} end, \
                u.message_id, u.payload{select} \
         from (select array_agg(k.id order by n.n) as id, array_agg(k.ordered order by n.n) as ordered \
               from unnest($1::text[]) with ordinality n(name, n) join {{queue}} k on k.name = n.name \
               having count(*) = cardinality($1::text[])) k, \
              unnest($2::smallint[], $3::uuid[], $4::bytea[]{unnest}) u(queue, message_id, payload{alias}) \
         where (select count(pg_notify('{{#signal}}', q.name)) from {{queue}} q where q.name = any($1::text[]) \
                and exists (select from {{sleeper}} s where s.queue = q.id and s.until > clock_timestamp())) >= 0"
    )
}

/// The distinct queues of a batch, and for each message the position of its own among them, from 1.
fn queues<'m>(messages: impl IntoIterator<Item = &'m Message>) -> Result<(Vec<&'m str>, Vec<i16>), Invalid> {
    let mut names: Vec<&str> = Vec::new();
    let mut known: HashMap<&str, i16> = HashMap::new();
    let mut positions = Vec::new();
    for message in messages {
        let name = message.queue().as_str();
        let position = match known.get(name) {
            Some(position) => *position,
            None => {
                names.push(name);
                let position = i16::try_from(names.len()).map_err(|_| {
                    Invalid::rule("batch", "names more than 32,767 queues; stage it in parts")
                })?;
                known.insert(name, position);
                position
            }
        };
        positions.push(position);
    }
    Ok((names, positions))
}

fn payloads<'m>(messages: impl IntoIterator<Item = &'m Message>) -> Vec<&'m [u8]> {
    messages.into_iter().map(|message| message.payload().as_ref()).collect()
}

fn due_after(message: &Message) -> Option<f64> {
    match message.due() {
        Due::After(after) => Some(after.as_secs_f64()),
        Due::Now | Due::At(_) => None,
    }
}

fn due_at(message: &Message) -> Option<OffsetDateTime> {
    match message.due() {
        Due::At(at) => Some(at.into()),
        Due::Now | Due::After(_) => None,
    }
}

fn extends(message: &Message) -> bool {
    message.timer().is_some_and(|timer| timer.on_conflict == OnConflict::Extend)
}
