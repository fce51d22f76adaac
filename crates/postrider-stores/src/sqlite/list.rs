//! Listing the messages of a state page by page, and finding messages.

use super::{
    Inner,
    error::store_error,
    queues::Queue,
    row::{self, COLUMNS, sql_limit},
    timestamp,
};
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
        format!(
            "{} and m.message_id = ?2",
            select(filter, &format!("{} m indexed by {}", table(filter), id_index(filter)))
        )
    });
    let sql = inner.names.sql(&selects.join(" union all "));
    let query = sql.query().bind(queue.number).bind(id.as_uuid());
    let row = query.fetch_optional(&inner.readers).await.map_err(store_error)?;
    row.map(|row| entry(&row, &queue.name)).transpose().map_err(store_error)
}

pub(super) fn table(filter: StateFilter) -> &'static str {
    match filter {
        StateFilter::Ready => "{ready}",
        StateFilter::Scheduled => "{scheduled}",
        StateFilter::Dead => "{dead}",
        StateFilter::Done => "{archive}",
    }
}

/// The index of a table by message id.
fn id_index(filter: StateFilter) -> &'static str {
    match filter {
        StateFilter::Ready => "{ready_message}",
        StateFilter::Scheduled => "{scheduled_message}",
        StateFilter::Dead => "{dead_message}",
        StateFilter::Done => "{archive_message}",
    }
}

/// The time column of a table: pages are ordered by it, except those of `ready`.
pub(super) fn time(filter: StateFilter) -> &'static str {
    match filter {
        StateFilter::Ready | StateFilter::Scheduled => "due_at",
        StateFilter::Dead => "failed_at",
        StateFilter::Done => "archived_at",
    }
}

/// Columns: position, staged_at, time, deliveries, attempts, state, reason, error, and those of the message.
fn columns(filter: StateFilter) -> String {
    let time = time(filter);
    let state = match filter {
        // On an ordered queue the key is leased or blocked; the message at its head shows that.
        StateFilter::Ready => {
            "case when m.lease_until > {now} then 'leased' when m.ordered = 1 then coalesce(( \
               select case when l.lease_until > {now} then 'leased' when l.due_at > {now} then 'scheduled' end \
               from {lane} l where l.queue = m.queue and l.key = m.key and m.id = (select min(h.id) from {ready} h \
                 where h.queue = m.queue and h.key = m.key and h.ordered = 1)), 'pending') else 'pending' end"
        }
        StateFilter::Scheduled => "case when m.due_at > {now} then 'scheduled' else 'pending' end",
        StateFilter::Dead => "'dead'",
        StateFilter::Done => "'done'",
    };
    let reason = if filter == StateFilter::Dead { "m.reason" } else { "null" };
    format!(
        "m.id, m.staged_at, m.{time}, m.deliveries, m.attempts, {state}, {reason}, m.last_error, {COLUMNS}"
    )
}

fn select(filter: StateFilter, from: &str) -> String {
    format!("select {} from {from} where m.queue = ?1", columns(filter))
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

fn find_template(find_by: &FindBy) -> String {
    let fits = match find_by {
        FindBy::Id(_) => "m.message_id = ?1",
        FindBy::Subject(..) => "m.subject = ?1 and m.tenant is ?2",
        FindBy::Key(_) => "m.key = ?1",
        // The 32 digits of the trace id in `00-trace-parent-01`.
        FindBy::Trace(_) => {
            "case when json_valid(m.headers) then substr(json_extract(m.headers, '$.traceparent'), 4, 32) = ?1 end"
        }
    };
    let selects = FILTERS.map(|filter| {
        let index = match find_by {
            FindBy::Id(_) => format!("indexed by {}", id_index(filter)),
            FindBy::Subject(..) => format!("indexed by {}", subject_index(filter)),
            FindBy::Key(_) | FindBy::Trace(_) => "not indexed".to_owned(),
        };
        format!(
            "select {}, q.name from {} m {index} join {{queue}} q on q.id = m.queue where {fits} and (?2 is null or 1)",
            columns(filter),
            table(filter)
        )
    });
    format!("{} order by 2, 1 limit ?3", selects.join(" union all "))
}

/// The index of a table by subject.
fn subject_index(filter: StateFilter) -> &'static str {
    match filter {
        StateFilter::Ready => "{ready_subject}",
        StateFilter::Scheduled => "{scheduled_subject}",
        StateFilter::Dead => "{dead_subject}",
        StateFilter::Done => "{archive_subject}",
    }
}

pub(super) fn page_template(filter: StateFilter) -> String {
    let mut only = "(?4 is null or m.key = ?4) and (?5 is null or m.event_type = ?5) \
        and (?8 is null or substr(m.last_error, 1, length(?8)) = ?8)"
        .to_owned();
    only.push_str(if filter == StateFilter::Dead {
        " and (?6 is null or m.reason = ?6)"
    } else {
        " and ?6 is null"
    });
    if filter == StateFilter::Ready {
        // Free and leased messages are in two indexes; the page takes the first of both.
        let part = |index: &str, token: &str| {
            let select = select(filter, &format!("{{ready}} m indexed by {index}"));
            format!(
                "select * from ({select} and m.token {token} and m.id > coalesce(?3, 0) and ?2 is null and {only} \
                 order by m.id limit ?7)"
            )
        };
        return format!(
            "{} union all {} order by 1 limit ?7",
            part("{ready_free}", "is null"),
            part("{ready_leased}", "is not null")
        );
    }
    let time = time(filter);
    let from = match filter {
        StateFilter::Scheduled => "{scheduled} m indexed by {scheduled_due}",
        StateFilter::Dead => "{dead} m indexed by {dead_failed}",
        StateFilter::Ready | StateFilter::Done => "{archive} m indexed by {archive_page}",
    };
    format!(
        "{} and (m.{time}, m.id) > (coalesce(?2, -9223372036854775808), coalesce(?3, 0)) and {only} \
         order by m.{time}, m.id limit ?7",
        select(filter, from)
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
