//! Listing the messages of a state page by page, and finding messages.

use super::{
    Inner,
    error::store_error,
    queues::Queue,
    row::{self, COLUMNS, sql_limit},
    timestamp,
};
use crate::template::Template;
use postrider_core::{
    BoxError, Error, EventType, MessageId, OrderingKey, QueueName, Reason,
    inspect::{Cursor, FindBy, ListRequest, MessageRow, Page, StateFilter},
};
use sqlx::{Row, sqlite::SqliteRow};

const FILTERS: [StateFilter; 4] =
    [StateFilter::Ready, StateFilter::Scheduled, StateFilter::Dead, StateFilter::Done];

/// The index of the first column of the message.
const FIRST: usize = 8;
/// The index of the queue's name, after the columns of the message.
const NAME: usize = FIRST + 9;

pub(super) async fn list(inner: &Inner, queue: &Queue, request: &ListRequest) -> Result<Page, Error> {
    let after = request.after.as_ref();
    let rows = inner
        .names
        .sql(&page_template(request.state))
        .query()
        .bind(queue.number)
        .bind(after.and_then(|cursor| cursor.at).map(timestamp::from_system_time))
        .bind(after.map(|cursor| cursor.position))
        .bind(request.key.as_ref().map(OrderingKey::as_str))
        .bind(request.event_type.as_ref().map(EventType::as_str))
        .bind(request.reason.map(Reason::as_str))
        .bind(sql_limit(request.limit))
        .bind(request.error.as_deref())
        .fetch_all(&inner.readers)
        .await
        .map_err(store_error)?;
    let entries =
        rows.iter().map(|row| entry(row, &queue.name)).collect::<Result<_, _>>().map_err(store_error)?;
    let next = rows.last().filter(|_| rows.len() >= request.limit);
    let next = next.map(|row| cursor(row, request.state)).transpose().map_err(store_error)?;
    Ok(Page { entries, next })
}

/// Reads all tables in one statement, so that a message that moves in the meantime is not missed.
pub(super) async fn get(inner: &Inner, queue: &Queue, id: MessageId) -> Result<Option<MessageRow>, Error> {
    let selects = FILTERS.map(|filter| {
        let from = sql!("{table} m indexed by {index}", table = table(filter), index = id_index(filter));
        sql!("{select} and m.message_id = ?2", select = select(filter, &from))
    });
    let sql = inner.names.sql(&Template::join(selects, " union all "));
    let query = sql.query().bind(queue.number).bind(id.as_uuid());
    let row = query.fetch_optional(&inner.readers).await.map_err(store_error)?;
    row.map(|row| entry(&row, &queue.name)).transpose().map_err(store_error)
}

pub(super) fn table(filter: StateFilter) -> Template {
    match filter {
        StateFilter::Ready => sql!("{ready}"),
        StateFilter::Scheduled => sql!("{scheduled}"),
        StateFilter::Dead => sql!("{dead}"),
        StateFilter::Done => sql!("{archive}"),
    }
}

/// The index of a table by message id.
fn id_index(filter: StateFilter) -> Template {
    match filter {
        StateFilter::Ready => sql!("{ready_message}"),
        StateFilter::Scheduled => sql!("{scheduled_message}"),
        StateFilter::Dead => sql!("{dead_message}"),
        StateFilter::Done => sql!("{archive_message}"),
    }
}

/// The time column of a table: pages are ordered by it, except those of `ready`.
pub(super) fn time(filter: StateFilter) -> Template {
    match filter {
        StateFilter::Ready | StateFilter::Scheduled => sql!("due_at"),
        StateFilter::Dead => sql!("failed_at"),
        StateFilter::Done => sql!("archived_at"),
    }
}

/// Columns: position, staged_at, time, deliveries, attempts, state, reason, error, and those of the message.
const ROW: &str =
    "m.id, m.staged_at, m.{time}, m.deliveries, m.attempts, {state}, {reason}, m.last_error, {message}";

fn columns(filter: StateFilter) -> Template {
    let state = match filter {
        // On an ordered queue the key is leased or blocked; the message at its head shows that.
        StateFilter::Ready => sql!(
            "case when m.lease_until > {now} then 'leased' when m.ordered = 1 then coalesce(( \
               select case when l.lease_until > {now} then 'leased' when l.due_at > {now} then 'scheduled' end \
               from {lane} l where l.queue = m.queue and l.key = m.key and m.id = (select min(h.id) from {ready} h \
                 where h.queue = m.queue and h.key = m.key and h.ordered = 1)), 'pending') else 'pending' end"
        ),
        StateFilter::Scheduled => sql!("case when m.due_at > {now} then 'scheduled' else 'pending' end"),
        StateFilter::Dead => sql!("'dead'"),
        StateFilter::Done => sql!("'done'"),
    };
    let reason = if filter == StateFilter::Dead { sql!("m.reason") } else { sql!("null") };
    sql!(ROW, time = time(filter), state, reason, message = sql!(COLUMNS))
}

fn select(filter: StateFilter, from: &Template) -> Template {
    sql!("select {columns} from {from} where m.queue = ?1", columns = columns(filter), from)
}

/// The messages that match, from all tables in one statement.
pub(super) async fn find(inner: &Inner, find_by: &FindBy, limit: usize) -> Result<Vec<MessageRow>, Error> {
    let sql = inner.names.sql(&find_template(find_by));
    let query = match find_by {
        FindBy::Id(id) => sql.query().bind(id.as_uuid()).bind(None::<String>),
        FindBy::Subject(tenant, subject) => {
            let tenant = tenant.as_ref().map(ToString::to_string);
            sql.query().bind(subject.to_string()).bind(tenant)
        }
        FindBy::Key(key) => sql.query().bind(key.to_string()).bind(None::<String>),
        FindBy::Trace(trace) => sql.query().bind(trace.clone()).bind(None::<String>),
    };
    let rows = query.bind(sql_limit(limit)).fetch_all(&inner.readers).await.map_err(store_error)?;
    let found = rows.iter().map(|row| {
        let queue = QueueName::stored(row.try_get::<String, _>(NAME)?);
        entry(row, &queue)
    });
    found.collect::<Result<_, _>>().map_err(store_error)
}

fn find_template(find_by: &FindBy) -> Template {
    let fits = match find_by {
        FindBy::Id(_) => sql!("m.message_id = ?1"),
        FindBy::Subject(..) => sql!("m.subject = ?1 and m.tenant is ?2"),
        FindBy::Key(_) => sql!("m.key = ?1"),
        // The 32 digits of the trace id in `00-trace-parent-01`.
        FindBy::Trace(_) => sql!(
            "case when json_valid(m.headers) then substr(json_extract(m.headers, '$.traceparent'), 4, 32) = ?1 end"
        ),
    };
    let selects = FILTERS.map(|filter| {
        let indexed = match find_by {
            FindBy::Id(_) => sql!("indexed by {index}", index = id_index(filter)),
            FindBy::Subject(..) => sql!("indexed by {index}", index = subject_index(filter)),
            FindBy::Key(_) | FindBy::Trace(_) => sql!("not indexed"),
        };
        let (columns, table) = (columns(filter), table(filter));
        sql!(
            "select {columns}, q.name from {table} m {indexed} join {queue} q on q.id = m.queue where {fits} and (?2 is null or 1)",
            columns, table, indexed, fits
        )
    });
    sql!("{selects} order by 2, 1 limit ?3", selects = Template::join(selects, " union all "))
}

/// The index of a table by subject.
fn subject_index(filter: StateFilter) -> Template {
    match filter {
        StateFilter::Ready => sql!("{ready_subject}"),
        StateFilter::Scheduled => sql!("{scheduled_subject}"),
        StateFilter::Dead => sql!("{dead_subject}"),
        StateFilter::Done => sql!("{archive_subject}"),
    }
}

pub(super) fn page_template(filter: StateFilter) -> Template {
    let reason =
        if filter == StateFilter::Dead { sql!("(?6 is null or m.reason = ?6)") } else { sql!("?6 is null") };
    let only = sql!(
        "(?4 is null or m.key = ?4) and (?5 is null or m.event_type = ?5) \
        and (?8 is null or substr(m.last_error, 1, length(?8)) = ?8) and {reason}",
        reason
    );
    if filter == StateFilter::Ready {
        // Free and leased messages are in two indexes; the page takes the first of both.
        let part = |from: Template, token: Template| {
            sql!(
                "select * from ({select} and m.token {token} and m.id > coalesce(?3, 0) and ?2 is null and {only} \
                 order by m.id limit ?7)",
                select = select(filter, &from),
                token,
                only
            )
        };
        return sql!(
            "{free} union all {leased} order by 1 limit ?7",
            free = part(sql!("{ready} m indexed by {ready_free}"), sql!("is null")),
            leased = part(sql!("{ready} m indexed by {ready_leased}"), sql!("is not null"))
        );
    }
    let from = match filter {
        StateFilter::Scheduled => sql!("{scheduled} m indexed by {scheduled_due}"),
        StateFilter::Dead => sql!("{dead} m indexed by {dead_failed}"),
        StateFilter::Ready | StateFilter::Done => sql!("{archive} m indexed by {archive_page}"),
    };
    sql!(
        "{select} and (m.{time}, m.id) > (coalesce(?2, -9223372036854775808), coalesce(?3, 0)) and {only} \
         order by m.{time}, m.id limit ?7",
        select = select(filter, &from),
        time = time(filter),
        only
    )
}

fn entry(row: &SqliteRow, queue: &QueueName) -> Result<MessageRow, sqlx::Error> {
    let state: &str = row.try_get(5)?;
    let reason: Option<&str> = row.try_get(6)?;
    Ok(MessageRow {
        message: row::message(row, FIRST, queue)?,
        state: state.parse().map_err(|error| sqlx::Error::Decode(Box::new(error) as BoxError))?,
        staged_at: row::time(row, 1)?,
        at: row::time(row, 2)?,
        deliveries: row::count(row, 3)?,
        attempts: row::count(row, 4)?,
        reason: reason.and_then(|reason| reason.parse().ok()),
        error: row.try_get(7)?,
    })
}

fn cursor(row: &SqliteRow, filter: StateFilter) -> Result<Cursor, sqlx::Error> {
    let at = if filter == StateFilter::Ready { None } else { Some(row::time(row, 2)?) };
    Ok(Cursor { at, position: row.try_get(0)? })
}
