//! The statements that stage, and their parameters, for whichever driver runs them.
//!
//! Two statements serve. The **plain** one takes messages that are due now, have no timer and get their id from us: a bare
//! `INSERT … SELECT … FROM unnest`, with only the columns that the batch uses, since each array costs time. It inserts
//! nothing when one of the queues does not exist yet. The **general** one is a function of the database and takes
//! everything: given ids (which may exist already), times, timers, new queues. For drivers that keep no plans the
//! plain one exists as a function, too.
//!
//! Both notify: queues with an idle worker get a notification, others do not (`notifier.rs`). PostgreSQL cannot prepare a transaction
//! that has notified for a two-phase commit, so there are statements without notifications, too.
//!
//! Parameters appear in a statement in the order of their numbers, and borrow from the messages where possible: payloads are copied
//! once, by the driver, into its send buffer.

use super::{PostgresNames, names::Sql};
use crate::{envelope, template::Template};
use postrider_core::{Due, Invalid, Message, OnConflict, QueueName, StageOutcome, TimerName};
use std::{
    borrow::Cow,
    collections::HashMap,
    sync::{Mutex, PoisonError},
};
use time::OffsetDateTime;
use uuid::Uuid;

/// One statement with its parameters.
#[derive(Debug)]
pub(super) struct Statement<'m> {
    pub(super) sql: Sql,
    pub(super) params: Vec<Param<'m>>,
}

/// A parameter of a statement, in the type that PostgreSQL expects.
#[derive(Debug)]
pub(super) enum Param<'m> {
    /// `text`
    Name(&'m str),
    /// `text[]` without nulls
    Names(Vec<&'m str>),
    /// `text[]`
    Texts(Vec<Option<Cow<'m, str>>>),
    /// `smallint[]`
    Positions(Vec<i16>),
    /// `uuid[]`
    Ids(Vec<Uuid>),
    /// `boolean[]`
    Flags(Vec<bool>),
    /// `double precision[]`
    Seconds(Vec<Option<f64>>),
    /// `timestamptz[]`
    Moments(Vec<Option<OffsetDateTime>>),
    /// `bytea[]`
    Payloads(Vec<&'m [u8]>),
}

/// One row that the general statement returns: the outcome of a message that is not new.
#[derive(Debug)]
pub(super) struct StageReply {
    /// The number of the message among those sent, from 1.
    pub(super) position: i32,
    pub(super) outcome: StageOutcome,
    /// The id of the existing message.
    pub(super) id: Uuid,
}

impl StageReply {
    /// The columns `n`, `outcome` and `id`.
    pub(super) fn new(position: i32, outcome: &str, id: Uuid) -> Self {
        let outcome = match outcome {
            "ignored" => StageOutcome::Ignored,
            "extended" => StageOutcome::Extended,
            _ => StageOutcome::Duplicate,
        };
        Self { position, outcome, id }
    }
}

/// The statements of one set of tables. Plain ones are kept, since their text depends on the columns that a batch uses.
#[derive(Debug, Default)]
pub(super) struct Statements {
    names: PostgresNames,
    is_unprepared: bool,
    is_silent: bool,
    plain: Mutex<HashMap<ColumnSet, Sql>>,
}

impl Statements {
    pub(super) fn new(names: PostgresNames) -> Self {
        Self { names, ..Self::default() }
    }

    /// The same statements, never kept prepared.
    pub(super) fn unprepared(&self) -> Self {
        Self { is_unprepared: true, is_silent: self.is_silent, ..Self::new(self.names.clone()) }
    }

    /// The same statements, without notifications.
    pub(super) fn silent(&self) -> Self {
        Self { is_unprepared: self.is_unprepared, is_silent: true, ..Self::new(self.names.clone()) }
    }

    fn sql(&self, template: &Template) -> Sql {
        let sql = self.names.sql(template);
        if self.is_unprepared { sql.unprepared() } else { sql }
    }

    /// Inserts all messages, or none when a queue does not exist yet. With `kept` the driver keeps the plan of the statement;
    /// otherwise a function of the database does, which takes one queue only.
    pub(super) fn plain<'m>(
        &self,
        messages: &'m [Message],
        ids: &[Uuid],
        kept: bool,
    ) -> Result<Statement<'m>, Invalid> {
        let (queues, positions) = queues(messages)?;
        let columns = Columns::of(messages);
        // The function always notifies.
        if let ([queue], false) = (&queues[..], kept || self.is_silent) {
            let mut params =
                vec![Param::Name(queue), Param::Ids(ids.to_vec()), Param::Payloads(payloads(messages))];
            params.extend(columns.0.map(Param::Texts));
            return Ok(Statement { sql: self.sql(&sql!(STAGE_NEW)), params });
        }
        let mut shape = columns.shape();
        let mut params = if let [queue] = queues[..] {
            shape |= ONE_QUEUE;
            vec![Param::Name(queue)]
        } else {
            vec![Param::Names(queues), Param::Positions(positions)]
        };
        params.extend([Param::Ids(ids.to_vec()), Param::Payloads(payloads(messages))]);
        params.extend(columns.used().map(Param::Texts));
        let mut plain = self.plain.lock().unwrap_or_else(PoisonError::into_inner);
        let sql =
            plain.entry(shape).or_insert_with(|| self.sql(&plain_template(shape, !self.is_silent))).clone();
        Ok(Statement { sql, params })
    }

    /// Stages messages with ids, times, timers or new queues, and returns those that are not new.
    pub(super) fn general<'m>(&self, messages: &[(Uuid, &'m Message)]) -> Result<Statement<'m>, Invalid> {
        let given = || messages.iter().map(|(_, message)| *message);
        let (queues, positions) = queues(given())?;
        let mut params = vec![
            Param::Names(queues),
            Param::Positions(positions),
            Param::Ids(messages.iter().map(|(id, _)| *id).collect()),
            Param::Flags(given().map(|message| message.id().is_some()).collect()),
            Param::Seconds(given().map(due_after).collect()),
            Param::Moments(given().map(due_at).collect()),
            Param::Texts(given().map(|message| Some(message.timer()?.name.as_str().into())).collect()),
            Param::Flags(given().map(extends).collect()),
            Param::Payloads(payloads(given())),
        ];
        params.extend(Columns::of(given()).of_length(messages.len()).map(Param::Texts));
        let notify = if self.is_silent { sql!("false") } else { sql!("true") };
        Ok(Statement { sql: self.sql(&sql!(STAGE_MANY, notify)), params })
    }

    /// Returns one row when there was a timer to cancel, otherwise none.
    pub(super) fn cancel_timer<'m>(&self, queue: &'m QueueName, timer: &'m TimerName) -> Statement<'m> {
        Statement {
            sql: self.sql(&sql!("select 1 where {cancel_timer}($1::text, $2::text)")),
            params: vec![Param::Name(queue.as_str()), Param::Name(timer.as_str())],
        }
    }
}

const STAGE_NEW: &str = "select 1 where {stage_new}($1::text, $2::uuid[], $3::bytea[], $4::text[], $5::text[], $6::text[], \
    $7::text[], $8::text[], $9::text[]) > 0";

const STAGE_MANY: &str = "select n, outcome, id from {stage_many}($1::text[], $2::smallint[], $3::uuid[], $4::boolean[], \
    $5::double precision[], $6::timestamptz[], $7::text[], $8::boolean[], $9::bytea[], $10::text[], $11::text[], \
    $12::text[], $13::text[], $14::text[], $15::text[], {notify})";

/// The optional columns that a batch uses, as bits in the order of [`OPTIONAL`].
type ColumnSet = u8;

/// The optional columns, in the order of the general statement's arguments.
const OPTIONAL: [&str; 6] = ["event_type", "content_type", "key", "tenant", "subject", "headers"];
const KEY: usize = 2;
/// The bit of a batch for one queue.
const ONE_QUEUE: ColumnSet = 1 << 7;

/// The optional columns of a batch. A column that no message uses is empty.
struct Columns<'m>([Vec<Option<Cow<'m, str>>>; 6]);

impl<'m> Columns<'m> {
    fn of(messages: impl IntoIterator<Item = &'m Message>) -> Self {
        let mut columns: [Vec<_>; 6] = Default::default();
        for (index, message) in messages.into_iter().enumerate() {
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
                if value.is_some() && column.is_empty() {
                    column.resize(index, None);
                }
                if value.is_some() || !column.is_empty() {
                    column.push(value);
                }
            }
        }
        Self(columns)
    }

    fn shape(&self) -> ColumnSet {
        let used = self.0.iter().map(|column| !column.is_empty());
        used.enumerate().fold(0, |shape, (bit, used)| shape | (ColumnSet::from(used) << bit))
    }

    fn used(self) -> impl Iterator<Item = Vec<Option<Cow<'m, str>>>> {
        self.0.into_iter().filter(|column| !column.is_empty())
    }

    /// Every column, with a value for each of `messages`.
    fn of_length(self, messages: usize) -> impl Iterator<Item = Vec<Option<Cow<'m, str>>>> {
        self.0.into_iter().map(move |mut column| {
            column.resize(messages, None);
            column
        })
    }
}

/// No array of names: it would make every plan for given values look cheaper than the one for any, and so make the server plan this
/// statement anew each time. OFFSET makes the look-up of idle workers run once, not once for each row.
const STAGE_IN_ONE_QUEUE: &str = "insert into {ready} (queue, ordered, fair, key, message_id, payload{into}) \
    select k.id, k.ordered, k.fair, case when k.ordered then coalesce({key}, u.message_id::text) else {key} end, \
           u.message_id, u.payload{select} \
    from (select q.id, q.ordered, q.fair, \
                 (select count(pg_notify('{#signal}', $1::text)) from {idle} s \
                  where s.queue = q.id and s.until > clock_timestamp() and {notifies}) as signalled \
          from {queue} q where q.name = $1::text offset 0) k, \
         unnest($2::uuid[], $3::bytea[]{unnest}) u(message_id, payload{alias}) \
    where k.signalled >= 0";

const STAGE: &str = "insert into {ready} (queue, ordered, fair, key, message_id, payload{into}) \
    select k.id[u.queue], k.ordered[u.queue], k.fair[u.queue], \
           case when k.ordered[u.queue] then coalesce({key}, u.message_id::text) else {key} end, \
           u.message_id, u.payload{select} \
    from (select array_agg(k.id order by n.n) as id, array_agg(k.ordered order by n.n) as ordered, \
                 array_agg(k.fair order by n.n) as fair \
          from unnest($1::text[]) with ordinality n(name, n) join {queue} k on k.name = n.name \
          having count(*) = cardinality($1::text[])) k, \
         unnest($2::smallint[], $3::uuid[], $4::bytea[]{unnest}) u(queue, message_id, payload{alias}) \
    where (select count(pg_notify('{#signal}', q.name)) from {queue} q where q.name = any($1::text[]) and {notifies} \
           and exists (select from {idle} s where s.queue = q.id and s.until > clock_timestamp())) >= 0";

/// The transaction may turn notifications off.
const NOTIFIES: &str = "current_setting('{#notify}', true) is distinct from 'off'";

/// No join and no sort stands between `unnest` and the table, so positions are drawn in the order given. Queues are looked up
/// once per statement; when one is missing the whole statement inserts nothing.
fn plain_template(shape: ColumnSet, notifies: bool) -> Template {
    let first_param = if shape & ONE_QUEUE != 0 { 4_usize } else { 5 };
    let (mut into, mut select, mut unnest, mut alias) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let used = (0..OPTIONAL.len()).filter(|column| shape & (1 << column) != 0);
    for (column, number) in used.zip(first_param..) {
        let name = Template::of_schema(OPTIONAL[column]);
        unnest.push(sql!(", ${number}::text[]", number));
        alias.push(sql!(", {name}", name));
        if column != KEY {
            into.push(sql!(", {name}", name));
            let cast = if OPTIONAL[column] == "headers" { sql!("::jsonb") } else { sql!("") };
            select.push(sql!(", u.{name}{cast}", name, cast));
        }
    }
    let [into, select, unnest, alias] = [into, select, unnest, alias].map(|list| Template::join(list, ""));
    let key = if shape & (1 << KEY) != 0 { sql!("u.key") } else { sql!("null::text") };
    let notifies = if notifies { sql!(NOTIFIES) } else { sql!("false") };
    match shape & ONE_QUEUE != 0 {
        true => sql!(STAGE_IN_ONE_QUEUE, into, key, select, unnest, alias, notifies),
        false => sql!(STAGE, into, key, select, unnest, alias, notifies),
    }
}

/// The distinct queues of a batch, and for each message the number of its queue among them, from 1.
fn queues<'m>(messages: impl IntoIterator<Item = &'m Message>) -> Result<(Vec<&'m str>, Vec<i16>), Invalid> {
    let mut names: Vec<&str> = Vec::new();
    let mut known: HashMap<&str, i16> = HashMap::new();
    let mut positions = Vec::new();
    let mut last: Option<(&str, i16)> = None;
    for message in messages {
        let name = message.queue().as_str();
        // Most batches are for one queue.
        let position = match last {
            Some((last, position)) if last == name => Some(position),
            _ => known.get(name).copied(),
        };
        let position = match position {
            Some(position) => position,
            None => {
                names.push(name);
                let position = i16::try_from(names.len()).map_err(|_| {
                    Invalid::rule("batch", "names more than 32,767 queues; stage it in parts")
                })?;
                known.insert(name, position);
                position
            }
        };
        last = Some((name, position));
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
