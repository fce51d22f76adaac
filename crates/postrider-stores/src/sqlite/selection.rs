//! Bulk operations. One write selects and changes a chunk, so that no message moves in between.

use super::{
    Inner,
    error::store_error,
    list::{table, time},
    names::Sql,
    operate,
    queues::{self, Queue},
    row::{self, sql_limit},
    timestamp,
};
use crate::template::Template;
use postrider_core::{
    Error, EventType, Invalid, MessageId, OrderingKey, QueueName, Reason,
    inspect::{
        Action, ChangeReport, Chunk, Cursor, DeadGroup, ERROR_KIND_CHARS, Fence, Selection, SelectionSummary,
        StateFilter,
    },
};
use sqlx::{
    Row, Sqlite,
    query::Query,
    sqlite::{SqliteArguments, SqliteRow},
};
use std::time::SystemTime;
use uuid::Uuid;

/// The change to a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BulkAction {
    Requeue,
    Discard,
}

const FOLLOW_UP: &str = "case when json_valid(m.headers) then json_extract(m.headers, '$.\"followup-resolver\"') is not null else 0 end";

pub(super) async fn summarize(inner: &Inner, selection: &Selection) -> Result<SelectionSummary, Error> {
    let mut connection = inner.readers.acquire().await.map_err(store_error)?;
    let Some(queue) = queues::by_name(&mut *connection, &inner.names, &selection.queue).await? else {
        let fence = Fence { at: SystemTime::UNIX_EPOCH, position: 0 };
        return Ok(SelectionSummary { count: 0, follow_ups: 0, fence });
    };
    let sql = inner.names.sql(&sql!(
        SUMMARY,
        follow_up = sql!(FOLLOW_UP),
        selected = selected_template(selection.state)
    ));
    let row = selected(&sql, &queue, selection).fetch_one(&mut *connection).await.map_err(store_error)?;
    let number = |column: usize| row.try_get::<i64, _>(column).map_err(store_error);
    Ok(SelectionSummary {
        count: number(0)?.unsigned_abs(),
        follow_ups: number(1)?.unsigned_abs(),
        fence: Fence { at: timestamp::to_system_time(number(3)?), position: number(2)? },
    })
}

pub(super) async fn change_next(
    inner: &Inner,
    verb: BulkAction,
    selection: &Selection,
    chunk: &Chunk,
    action: &Action,
) -> Result<ChangeReport, Error> {
    action.check()?;
    if verb == BulkAction::Requeue && !matches!(selection.state, StateFilter::Dead | StateFilter::Done) {
        return Err(Invalid::rule("state", "only dead letters and archived messages can be requeued").into());
    }
    let names = &inner.names;
    let mut write = inner.writer.begin(names).await?;
    let Some(queue) = queues::by_name(&mut write.connection, names, &selection.queue).await? else {
        return Ok(ChangeReport { looked_at: 0, changed: 0, next: None });
    };
    let sql = names.sql(&pick_template(selection.state));
    let after = chunk.after.as_ref();
    let query = selected(&sql, &queue, selection)
        .bind(chunk.up_to.position)
        .bind(timestamp::from_system_time(chunk.up_to.at))
        .bind(after.and_then(|cursor| cursor.at).map(timestamp::from_system_time))
        .bind(after.map(|cursor| cursor.position))
        .bind(sql_limit(chunk.limit));
    let rows = query.fetch_all(&mut write.connection).await.map_err(store_error)?;
    let ids: Result<Vec<_>, _> =
        rows.iter().map(|row| row.try_get::<Uuid, _>(0).map(MessageId::from_uuid)).collect();
    let ids = ids.map_err(store_error)?;
    let changed = match verb {
        BulkAction::Requeue => {
            operate::requeue_from(&mut write, names, selection.state, &selection.queue, &ids, action).await?
        }
        BulkAction::Discard => operate::discard(&mut write, names, &selection.queue, &ids, action).await?,
    };
    write.commit().await?;
    let last = rows.last().filter(|_| rows.len() >= chunk.limit);
    let next = last.map(|row| cursor(row, selection.state)).transpose().map_err(store_error)?;
    Ok(ChangeReport { looked_at: rows.len() as u64, changed: changed.len() as u64, next })
}

pub(super) async fn groups(
    inner: &Inner,
    of: Option<&QueueName>,
    limit: usize,
) -> Result<Vec<DeadGroup>, Error> {
    let sql = inner.names.sql(&groups_template());
    let query = sql.query().bind(of.map(QueueName::as_str)).bind(sql_limit(limit));
    let rows = query.fetch_all(&inner.readers).await.map_err(store_error)?;
    rows.iter().map(|row| group(row).map_err(store_error)).collect()
}

/// The selected rows, with seven parameters. Each table has one index for it.
fn selected_template(filter: StateFilter) -> Template {
    let indexed = match filter {
        // Free and leased messages are in two indexes; the table has all of them in the order of positions.
        StateFilter::Ready => sql!("not indexed"),
        StateFilter::Scheduled => sql!("indexed by {scheduled_due}"),
        StateFilter::Dead => sql!("indexed by {dead_position}"),
        StateFilter::Done => sql!("indexed by {archive_page}"),
    };
    let reason =
        if filter == StateFilter::Dead { sql!("(?4 is null or m.reason = ?4)") } else { sql!("?4 is null") };
    const SELECTED: &str = "{table} m {indexed} where m.queue = ?1 and (?2 is null or m.key = ?2) \
        and (?3 is null or m.event_type = ?3) and {reason} and (?5 is null or substr(m.last_error, 1, length(?5)) = ?5) \
        and (?6 is null or m.{time} >= ?6) and (?7 is null or m.{time} <= ?7)";
    sql!(SELECTED, table = table(filter), indexed, reason, time = time(filter))
}

fn selected<'q>(sql: &Sql, queue: &Queue, selection: &'q Selection) -> Query<'q, Sqlite, SqliteArguments> {
    sql.query()
        .bind(queue.number)
        .bind(selection.key.as_ref().map(OrderingKey::as_str))
        .bind(selection.event_type.as_ref().map(EventType::as_str))
        .bind(selection.reason.map(Reason::as_str))
        .bind(selection.error.as_deref())
        .bind(selection.since.map(timestamp::from_system_time))
        .bind(selection.until.map(timestamp::from_system_time))
}

const SUMMARY: &str = "select count(*) filter (where not s.follow_up), count(*) filter (where s.follow_up), coalesce(max(s.id), 0), {now} \
    from (select m.id, {follow_up} as follow_up from {selected}) s";

pub(super) fn pick_template(filter: StateFilter) -> Template {
    let time = time(filter);
    let (after, order) = match filter {
        StateFilter::Ready | StateFilter::Dead => {
            (sql!("?10 is null and m.id > coalesce(?11, 0)"), sql!("m.id"))
        }
        StateFilter::Scheduled | StateFilter::Done => (
            sql!("(m.{time}, m.id) > (coalesce(?10, -9223372036854775808), coalesce(?11, 0))", time),
            sql!("m.{time}, m.id", time),
        ),
    };
    // In `dead` and `archive` the time is that of arrival in the table, so it bounds the selection, too.
    let bound = match filter {
        StateFilter::Dead | StateFilter::Done => sql!("m.{time} <= ?9", time),
        StateFilter::Ready | StateFilter::Scheduled => sql!("?9 is not null"),
    };
    const PICK: &str = "select m.message_id, m.id, m.{time} from {selected} and m.id <= ?8 and {bound} and {after} \
        and not {follow_up} order by {order} limit ?12";
    sql!(PICK, time, selected = selected_template(filter), bound, after, follow_up = sql!(FOLLOW_UP), order)
}

/// Groups by the same rule as `error_kind`.
fn groups_template() -> Template {
    let before = |text: Template, end: Template| {
        sql!("substr({text}, 1, instr({text} || {end}, {end}) - 1)", text, end)
    };
    const GROUPS: &str = "select g.name, g.reason, substr({kind}, 1, {chars}), count(*), min(g.failed_at), max(g.failed_at) \
        from (select q.name, d.reason, d.failed_at, {line} as line from {queue} q \
          join {dead} d indexed by {dead_failed} on d.queue = q.id where ?1 is null or q.name = ?1) g \
        group by 1, 2, 3 order by 4 desc, 1, 3 limit ?2";
    let (line, kind) = (before(sql!("d.last_error"), sql!("char(10)")), before(sql!("g.line"), sql!("': '")));
    sql!(GROUPS, kind, chars = ERROR_KIND_CHARS, line)
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

fn cursor(row: &SqliteRow, filter: StateFilter) -> Result<Cursor, sqlx::Error> {
    let by_position = matches!(filter, StateFilter::Ready | StateFilter::Dead);
    let at = if by_position { None } else { Some(row::time(row, 2)?) };
    Ok(Cursor { at, position: row.try_get(1)? })
}
