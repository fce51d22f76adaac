//! Many messages at once. A chunk is picked and changed in one write, so that nothing moves in between.

use super::{
    Inner,
    error::store_error,
    moment,
    names::Sql,
    operate,
    page::{table, time},
    queues::{self, Queue},
    row::{self, limit},
};
use postrider_core::{
    Error, EventType, Invalid, MessageId, OrderingKey, QueueName, Reason,
    inspect::{
        Action, Changed, Chunk, Cursor, DeadGroup, ERROR_KIND_CHARS, Fence, Room, Selected, Selection,
    },
};
use sqlx::{
    Row, Sqlite,
    query::Query,
    sqlite::{SqliteArguments, SqliteRow},
};
use std::time::SystemTime;
use uuid::Uuid;

/// What is done with a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verb {
    Requeue,
    Discard,
}

const FOLLOW_UP: &str = "case when json_valid(m.headers) then json_extract(m.headers, '$.\"followup-resolver\"') is not null else 0 end";

pub(super) async fn tally(inner: &Inner, selection: &Selection) -> Result<Selected, Error> {
    let mut connection = inner.readers.acquire().await.map_err(store_error)?;
    let Some(queue) = queues::named(&mut *connection, &inner.names, &selection.queue).await? else {
        let fence = Fence { at: SystemTime::UNIX_EPOCH, place: 0 };
        return Ok(Selected { count: 0, follow_ups: 0, fence });
    };
    let sql = inner.names.sql(&tally_template(selection.room));
    let row = selected(&sql, &queue, selection).fetch_one(&mut *connection).await.map_err(store_error)?;
    let number = |column: usize| row.try_get::<i64, _>(column).map_err(store_error);
    Ok(Selected {
        count: number(0)?.unsigned_abs(),
        follow_ups: number(1)?.unsigned_abs(),
        fence: Fence { at: moment::time(number(3)?), place: number(2)? },
    })
}

pub(super) async fn change_next(
    inner: &Inner,
    verb: Verb,
    selection: &Selection,
    chunk: &Chunk,
    action: &Action,
) -> Result<Changed, Error> {
    action.check()?;
    if verb == Verb::Requeue && !matches!(selection.room, Room::Dead | Room::Archive) {
        return Err(Invalid::rule("room", "only dead letters and what is kept can be put back").into());
    }
    let names = &inner.names;
    let mut write = inner.writer.begin(names).await?;
    let Some(queue) = queues::named(&mut write.connection, names, &selection.queue).await? else {
        return Ok(Changed { looked_at: 0, changed: 0, next: None });
    };
    let sql = names.sql(&pick_template(selection.room));
    let after = chunk.after.as_ref();
    let query = selected(&sql, &queue, selection)
        .bind(chunk.up_to.place)
        .bind(moment::of(chunk.up_to.at))
        .bind(after.and_then(|cursor| cursor.at).map(moment::of))
        .bind(after.map(|cursor| cursor.place))
        .bind(limit(chunk.limit));
    let rows = query.fetch_all(&mut write.connection).await.map_err(store_error)?;
    let ids: Result<Vec<_>, _> =
        rows.iter().map(|row| row.try_get::<Uuid, _>(0).map(MessageId::from_uuid)).collect();
    let ids = ids.map_err(store_error)?;
    let changed = match verb {
        Verb::Requeue => {
            operate::put_back(&mut write, names, selection.room, &selection.queue, &ids, action).await?
        }
        Verb::Discard => operate::discard(&mut write, names, &selection.queue, &ids, action).await?,
    };
    write.commit().await?;
    let last = rows.last().filter(|_| rows.len() >= chunk.limit);
    let next = last.map(|row| cursor(row, selection.room)).transpose().map_err(store_error)?;
    Ok(Changed { looked_at: rows.len() as u64, changed: changed.len() as u64, next })
}

pub(super) async fn groups(
    inner: &Inner,
    of: Option<&QueueName>,
    most: usize,
) -> Result<Vec<DeadGroup>, Error> {
    let sql = inner.names.sql(&groups_template());
    let query = sql.query().bind(of.map(QueueName::as_str)).bind(limit(most));
    let rows = query.fetch_all(&inner.readers).await.map_err(store_error)?;
    rows.iter().map(|row| group(row).map_err(store_error)).collect()
}

/// What is selected, with seven parameters. Each room has one index that serves.
fn selected_template(room: Room) -> String {
    let index = match room {
        // What is free and what is leased are in two indexes; all of them are in the table, in the order of places.
        Room::Ready => "not indexed",
        Room::Later => "indexed by {later_due}",
        Room::Dead => "indexed by {dead_place}",
        Room::Archive => "indexed by {archive_page}",
    };
    let (table, time) = (table(room), time(room));
    let reason = if room == Room::Dead { "(?4 is null or m.reason = ?4)" } else { "?4 is null" };
    format!(
        "{table} m {index} where m.queue = ?1 and (?2 is null or m.key = ?2) and (?3 is null or m.event_type = ?3) \
         and {reason} and (?5 is null or substr(m.last_error, 1, length(?5)) = ?5) \
         and (?6 is null or m.{time} >= ?6) and (?7 is null or m.{time} <= ?7)"
    )
}

fn selected<'q>(sql: &Sql, queue: &Queue, selection: &'q Selection) -> Query<'q, Sqlite, SqliteArguments> {
    sql.query()
        .bind(queue.number)
        .bind(selection.key.as_ref().map(OrderingKey::as_str))
        .bind(selection.event_type.as_ref().map(EventType::as_str))
        .bind(selection.reason.map(Reason::as_str))
        .bind(selection.error.as_deref())
        .bind(selection.since.map(moment::of))
        .bind(selection.until.map(moment::of))
}

fn tally_template(room: Room) -> String {
    format!(
        "select count(*) filter (where not s.follow_up), count(*) filter (where s.follow_up), coalesce(max(s.id), 0), {{now}} \
         from (select m.id, {FOLLOW_UP} as follow_up from {}) s",
        selected_template(room)
    )
}

pub(super) fn pick_template(room: Room) -> String {
    let time = time(room);
    let (after, order) = match room {
        Room::Ready | Room::Dead => ("?10 is null and m.id > coalesce(?11, 0)".to_owned(), "m.id".to_owned()),
        Room::Later | Room::Archive => (
            format!("(m.{time}, m.id) > (coalesce(?10, -9223372036854775808), coalesce(?11, 0))"),
            format!("m.{time}, m.id"),
        ),
    };
    // Where the time is when messages came there, it is a fence, too.
    let came = match room {
        Room::Dead | Room::Archive => format!("m.{time} <= ?9"),
        Room::Ready | Room::Later => "?9 is not null".to_owned(),
    };
    format!(
        "select m.message_id, m.id, m.{time} from {} and m.id <= ?8 and {came} and {after} and not {FOLLOW_UP} \
         order by {order} limit ?12",
        selected_template(room)
    )
}

/// The same as `error_kind` says.
fn groups_template() -> String {
    let before = |text: &str, end: &str| format!("substr({text}, 1, instr({text} || {end}, {end}) - 1)");
    let line = before("d.last_error", "char(10)");
    format!(
        "select g.name, g.reason, substr({}, 1, {ERROR_KIND_CHARS}), count(*), min(g.failed_at), max(g.failed_at) \
         from (select q.name, d.reason, d.failed_at, {line} as line from {{queue}} q \
           join {{dead}} d indexed by {{dead_failed}} on d.queue = q.id where ?1 is null or q.name = ?1) g \
         group by 1, 2, 3 order by 4 desc, 1, 3 limit ?2",
        before("g.line", "': '")
    )
}

fn group(row: &SqliteRow) -> Result<DeadGroup, sqlx::Error> {
    let reason: &str = row.try_get(1)?;
    Ok(DeadGroup {
        queue: QueueName::stored(row.try_get::<String, _>(0)?),
        reason: reason.parse().ok(),
        error: row.try_get(2)?,
        count: row.try_get::<i64, _>(3)?.unsigned_abs(),
        oldest: row::time(row, 4)?,
        newest: row::time(row, 5)?,
    })
}

fn cursor(row: &SqliteRow, room: Room) -> Result<Cursor, sqlx::Error> {
    let by_place = matches!(room, Room::Ready | Room::Dead);
    let at = if by_place { None } else { Some(row::time(row, 2)?) };
    Ok(Cursor { at, place: row.try_get(1)? })
}
