//! Many messages at once: a chunk is one statement, which picks messages by an index of their room and hands them to the function
//! that changes them. Only numbers leave the server.

use super::{Names, PostgresStore, claim::limit, error::store_error, names::Sql, queues::Queue, row::Moment};
use postrider_core::{
    Error, EventType, Invalid, OrderingKey, QueueName, Reason,
    inspect::{
        Action, Changed, Chunk, Cursor, DeadGroup, ERROR_KIND_CHARS, Fence, Room, Selected, Selection,
    },
};
use sqlx::{
    Row,
    postgres::{PgArguments, PgRow},
    query::Query,
};
use std::time::SystemTime;

/// What is done with a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verb {
    Requeue,
    Discard,
}

impl PostgresStore {
    pub(super) async fn tallied(&self, selection: &Selection) -> Result<Selected, Error> {
        let Some(queue) = self.queue(&selection.queue).await? else {
            let fence = Fence { at: SystemTime::UNIX_EPOCH, place: 0 };
            return Ok(Selected { count: 0, follow_ups: 0, fence });
        };
        let sql = self.inner.names.sql(&tally_template(selection.room));
        let row = self.inner.connections.run_for_one(selected(&sql, &queue, selection)).await?;
        let number = |column: usize| row.try_get::<i64, _>(column).map_err(store_error);
        Ok(Selected {
            count: number(0)?.unsigned_abs(),
            follow_ups: number(1)?.unsigned_abs(),
            fence: Fence { at: moment(&row, 3)?, place: number(2)? },
        })
    }

    pub(super) async fn change_next(
        &self,
        verb: Verb,
        selection: &Selection,
        chunk: &Chunk,
        action: &Action,
    ) -> Result<Changed, Error> {
        action.check()?;
        if verb == Verb::Requeue && !matches!(selection.room, Room::Dead | Room::Archive) {
            return Err(Invalid::rule("room", "only dead letters and what is kept can be put back").into());
        }
        let Some(queue) = self.queue(&selection.queue).await? else {
            return Ok(Changed { looked_at: 0, changed: 0, next: None });
        };
        let sql = self.inner.names.sql(&change_template(verb, selection.room));
        let after = chunk.after.as_ref();
        let query = selected(&sql, &queue, selection)
            .bind(chunk.up_to.place)
            .bind(Moment(chunk.up_to.at))
            .bind(after.and_then(|cursor| cursor.at).map(Moment))
            .bind(after.map(|cursor| cursor.place))
            .bind(limit(chunk.limit))
            .bind(&action.actor)
            .bind(&action.why);
        let row = self.inner.connections.run_for_one(query).await?;
        let looked_at = row.try_get::<i64, _>(0).map_err(store_error)?.unsigned_abs();
        let changed = row.try_get::<i32, _>(1).map_err(store_error)?.unsigned_abs().into();
        let is_full = looked_at > 0 && looked_at >= chunk.limit as u64;
        let next = if is_full { Some(cursor(&row, selection.room)?) } else { None };
        Ok(Changed { looked_at, changed, next })
    }

    pub(super) async fn grouped(&self, of: Option<&QueueName>, most: usize) -> Result<Vec<DeadGroup>, Error> {
        let sql = self.inner.names.sql(&groups_template());
        let query = sql.query().bind(of.map(QueueName::as_str)).bind(limit(most));
        let rows = self.inner.connections.run(query).await?;
        rows.iter().map(group).collect()
    }
}

/// The time that a room is known by.
fn time(room: Room) -> &'static str {
    match room {
        Room::Ready | Room::Later => "due_at",
        Room::Dead => "failed_at",
        Room::Archive => "archived_at",
    }
}

/// What is selected, with seven parameters.
fn selected_template(room: Room) -> String {
    let table = match room {
        Room::Ready => "{ready}",
        Room::Later => "{later}",
        Room::Dead => "{dead}",
        Room::Archive => "{archive}",
    };
    let reason = if room == Room::Dead { "m.reason" } else { "null::text" };
    let time = time(room);
    format!(
        "{table} m where m.queue = $1 and ($2::text is null or m.key = $2) and ($3::text is null or m.event_type = $3) \
         and ($4::text is null or {reason} = $4) and ($5::text is null or starts_with(m.last_error, $5)) \
         and ($6::timestamptz is null or m.{time} >= $6) and ($7::timestamptz is null or m.{time} <= $7)"
    )
}

fn selected<'q>(
    sql: &'q Sql,
    queue: &Queue,
    selection: &'q Selection,
) -> Query<'q, sqlx::Postgres, PgArguments> {
    sql.query()
        .bind(queue.number)
        .bind(selection.key.as_ref().map(OrderingKey::as_str))
        .bind(selection.event_type.as_ref().map(EventType::as_str))
        .bind(selection.reason.map(Reason::as_str))
        .bind(selection.error.as_deref())
        .bind(selection.since.map(Moment))
        .bind(selection.until.map(Moment))
}

fn tally_template(room: Room) -> String {
    format!(
        "select count(*) filter (where not s.follow_up), count(*) filter (where s.follow_up), coalesce(max(s.id), 0), \
           clock_timestamp() \
         from (select m.id, (m.headers ? 'followup-resolver') is true as follow_up from {}) s",
        selected_template(room)
    )
}

/// The statements for dead letters, for tests that read their plans.
pub(super) fn texts(names: &Names) -> [(&'static str, String); 2] {
    let text = |verb| names.sql(&change_template(verb, Room::Dead)).as_str().to_owned();
    [
        ("next dead letters to put back", text(Verb::Requeue)),
        ("next dead letters to remove", text(Verb::Discard)),
    ]
}

/// Dead letters in the order of their places, by `dead_place`; what may run likewise, by `ready_pkey`. The others by their time:
/// `later_pkey`, `archive_page`.
fn change_template(verb: Verb, room: Room) -> String {
    let time = time(room);
    let (after, order) = match room {
        Room::Ready | Room::Dead => (
            "($10::timestamptz is null or true) and m.id > coalesce($11, 0)".to_owned(),
            "m.queue, m.id".to_owned(),
        ),
        Room::Later | Room::Archive => (
            format!("(m.{time}, m.id) > (coalesce($10, '-infinity'::timestamptz), coalesce($11, 0))"),
            format!("m.queue, m.{time}, m.id"),
        ),
    };
    // Where the time is when messages came there, it is a fence, too.
    let came = match room {
        Room::Dead | Room::Archive => format!("m.{time} <= $9"),
        Room::Ready | Room::Later => "$9::timestamptz is not null".to_owned(),
    };
    let change = match (verb, room) {
        (Verb::Requeue, Room::Archive) => "{replay}",
        (Verb::Requeue, _) => "{requeue}",
        (Verb::Discard, _) => "{discard}",
    };
    format!(
        "with picked as materialized ( \
           select m.message_id, m.id, m.{time} as at from {} and m.id <= $8 and {came} and {after} \
             and (m.headers ? 'followup-resolver') is not true \
           order by {order} limit $12) \
         select s.n, cardinality({change}($1, s.ids, $13, $14)), s.at, s.id from ( \
           select count(*) as n, coalesce(array_agg(p.message_id), '{{}}') as ids, \
             (array_agg(p.at))[count(*)] as at, (array_agg(p.id))[count(*)] as id \
           from picked p) s",
        selected_template(room)
    )
}

/// The same as `error_kind` says.
fn groups_template() -> String {
    format!(
        "select q.name, d.reason, left(split_part(split_part(d.last_error, E'\\n', 1), ': ', 1), {ERROR_KIND_CHARS}), \
           count(*), min(d.failed_at), max(d.failed_at) \
         from {{queue}} q join {{dead}} d on d.queue = q.id where $1::text is null or q.name = $1 \
         group by 1, 2, 3 order by 4 desc, 1, 3 limit $2"
    )
}

fn group(row: &PgRow) -> Result<DeadGroup, Error> {
    let reason: &str = row.try_get(1).map_err(store_error)?;
    Ok(DeadGroup {
        queue: QueueName::stored(row.try_get::<String, _>(0).map_err(store_error)?),
        reason: reason.parse().ok(),
        error: row.try_get(2).map_err(store_error)?,
        count: row.try_get::<i64, _>(3).map_err(store_error)?.unsigned_abs(),
        oldest: moment(row, 4)?,
        newest: moment(row, 5)?,
    })
}

fn cursor(row: &PgRow, room: Room) -> Result<Cursor, Error> {
    let by_place = matches!(room, Room::Ready | Room::Dead);
    let at = if by_place { None } else { Some(moment(row, 2)?) };
    Ok(Cursor { at, place: row.try_get(3).map_err(store_error)? })
}

fn moment(row: &PgRow, column: usize) -> Result<SystemTime, Error> {
    row.try_get::<Moment, _>(column).map(|moment| moment.0).map_err(store_error)
}
