//! Listing the messages of a room, page by page, and finding one.

use super::{
    Inner,
    error::store_error,
    moment,
    queues::Queue,
    row::{self, COLUMNS, limit},
};
use postrider_core::{
    Error, EventType, MessageId, OrderingKey, QueueName, Reason,
    inspect::{Clue, Cursor, Entry, ListRequest, Page, Room},
    store::Source,
};
use sqlx::{Row, sqlite::SqliteRow};

const ROOMS: [Room; 4] = [Room::Ready, Room::Later, Room::Dead, Room::Archive];

/// Where the columns of the message begin.
const FIRST: usize = 8;
/// Where the name of the queue is, behind the columns of the message.
const NAME: usize = FIRST + 9;

pub(super) async fn list(inner: &Inner, queue: &Queue, request: &ListRequest) -> Result<Page, Error> {
    let after = request.after.as_ref();
    let rows = inner
        .names
        .sql(&page_template(request.room))
        .query()
        .bind(queue.number)
        .bind(after.and_then(|cursor| cursor.at).map(moment::of))
        .bind(after.map(|cursor| cursor.place))
        .bind(request.key.as_ref().map(OrderingKey::as_str))
        .bind(request.event_type.as_ref().map(EventType::as_str))
        .bind(request.reason.map(Reason::as_str))
        .bind(limit(request.limit))
        .bind(request.error.as_deref())
        .fetch_all(&inner.readers)
        .await
        .map_err(store_error)?;
    let entries =
        rows.iter().map(|row| entry(row, &queue.name)).collect::<Result<_, _>>().map_err(store_error)?;
    let next = rows.last().filter(|_| rows.len() >= request.limit);
    let next = next.map(|row| cursor(row, request.room)).transpose().map_err(store_error)?;
    Ok(Page { entries, next })
}

/// Looks into all rooms in one statement, so that a message that moves meanwhile is not missed.
pub(super) async fn get(inner: &Inner, queue: &Queue, id: MessageId) -> Result<Option<Entry>, Error> {
    let rooms = ROOMS.map(|room| {
        format!(
            "{} and m.message_id = ?2",
            select(room, &format!("{} m indexed by {}", table(room), identity(room)))
        )
    });
    let sql = inner.names.sql(&rooms.join(" union all "));
    let query = sql.query().bind(queue.number).bind(id.as_uuid());
    let row = query.fetch_optional(&inner.readers).await.map_err(store_error)?;
    row.map(|row| entry(&row, &queue.name)).transpose().map_err(store_error)
}

pub(super) fn table(room: Room) -> &'static str {
    match room {
        Room::Ready => "{ready}",
        Room::Later => "{later}",
        Room::Dead => "{dead}",
        Room::Archive => "{archive}",
    }
}

/// The index by which a room finds an identity.
fn identity(room: Room) -> &'static str {
    match room {
        Room::Ready => "{ready_message}",
        Room::Later => "{later_message}",
        Room::Dead => "{dead_message}",
        Room::Archive => "{archive_message}",
    }
}

/// The time that a room is paged by, or shows.
pub(super) fn time(room: Room) -> &'static str {
    match room {
        Room::Ready | Room::Later => "due_at",
        Room::Dead => "failed_at",
        Room::Archive => "archived_at",
    }
}

/// Columns: place, staged_at, time, deliveries, attempts, state, reason, error, and those of the message.
fn columns(room: Room) -> String {
    let time = time(room);
    let state = match room {
        // On an ordered queue the key is leased or waits; that shows on the message at its head.
        Room::Ready => {
            "case when m.lease_until > {now} then 'leased' when m.ordered = 1 then coalesce(( \
               select case when l.lease_until > {now} then 'leased' when l.due_at > {now} then 'waiting' end \
               from {lane} l where l.queue = m.queue and l.key = m.key and m.id = (select min(h.id) from {ready} h \
                 where h.queue = m.queue and h.key = m.key and h.ordered = 1)), 'pending') else 'pending' end"
        }
        Room::Later => "case when m.due_at > {now} then 'waiting' else 'pending' end",
        Room::Dead => "'dead'",
        Room::Archive => "'done'",
    };
    let reason = if room == Room::Dead { "m.reason" } else { "null" };
    format!(
        "m.id, m.staged_at, m.{time}, m.deliveries, m.attempts, {state}, {reason}, m.last_error, {COLUMNS}"
    )
}

fn select(room: Room, from: &str) -> String {
    format!("select {} from {from} where m.queue = ?1", columns(room))
}

/// Messages that a clue leads to, in all rooms in one statement.
pub(super) async fn find(inner: &Inner, clue: &Clue, most: usize) -> Result<Vec<Entry>, Error> {
    let sql = inner.names.sql(&find_template(clue));
    let query = match clue {
        Clue::Id(id) => sql.query().bind(id.as_uuid()).bind(None::<String>),
        Clue::Subject(tenant, subject) => {
            let tenant = tenant.as_ref().map(ToString::to_string);
            sql.query().bind(subject.to_string()).bind(tenant)
        }
        Clue::Key(key) => sql.query().bind(key.to_string()).bind(None::<String>),
        Clue::Trace(trace) => sql.query().bind(trace.clone()).bind(None::<String>),
    };
    let rows = query.bind(limit(most)).fetch_all(&inner.readers).await.map_err(store_error)?;
    let found = rows.iter().map(|row| {
        let queue = QueueName::stored(row.try_get::<String, _>(NAME)?);
        entry(row, &queue)
    });
    found.collect::<Result<_, _>>().map_err(store_error)
}

fn find_template(clue: &Clue) -> String {
    let fits = match clue {
        Clue::Id(_) => "m.message_id = ?1",
        Clue::Subject(..) => "m.subject = ?1 and m.tenant is ?2",
        Clue::Key(_) => "m.key = ?1",
        // Of `00-trace-parent-01` the 32 digits.
        Clue::Trace(_) => {
            "case when json_valid(m.headers) then substr(json_extract(m.headers, '$.traceparent'), 4, 32) = ?1 end"
        }
    };
    let rooms = ROOMS.map(|room| {
        let index = match clue {
            Clue::Id(_) => format!("indexed by {}", identity(room)),
            Clue::Subject(..) => format!("indexed by {}", about(room)),
            Clue::Key(_) | Clue::Trace(_) => "not indexed".to_owned(),
        };
        format!(
            "select {}, q.name from {} m {index} join {{queue}} q on q.id = m.queue where {fits} and (?2 is null or 1)",
            columns(room),
            table(room)
        )
    });
    format!("{} order by 2, 1 limit ?3", rooms.join(" union all "))
}

/// The index by which a room finds a subject.
fn about(room: Room) -> &'static str {
    match room {
        Room::Ready => "{ready_subject}",
        Room::Later => "{later_subject}",
        Room::Dead => "{dead_subject}",
        Room::Archive => "{archive_subject}",
    }
}

pub(super) fn page_template(room: Room) -> String {
    let mut only = "(?4 is null or m.key = ?4) and (?5 is null or m.event_type = ?5) \
        and (?8 is null or substr(m.last_error, 1, length(?8)) = ?8)"
        .to_owned();
    only.push_str(if room == Room::Dead { " and (?6 is null or m.reason = ?6)" } else { " and ?6 is null" });
    if room == Room::Ready {
        // What is free and what is leased are in two indexes; both are looked through, and the first of both make the page.
        let part = |index: &str, token: &str| {
            let select = select(room, &format!("{{ready}} m indexed by {index}"));
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
    let time = time(room);
    let from = match room {
        Room::Later => "{later} m indexed by {later_due}",
        Room::Dead => "{dead} m indexed by {dead_failed}",
        Room::Ready | Room::Archive => "{archive} m indexed by {archive_page}",
    };
    format!(
        "{} and (m.{time}, m.id) > (coalesce(?2, -9223372036854775808), coalesce(?3, 0)) and {only} \
         order by m.{time}, m.id limit ?7",
        select(room, from)
    )
}

fn entry(row: &SqliteRow, queue: &QueueName) -> Result<Entry, sqlx::Error> {
    let state: &str = row.try_get(5)?;
    let reason: Option<&str> = row.try_get(6)?;
    Ok(Entry {
        message: row::message(row, FIRST, queue)?,
        state: state.parse().map_err(|error| sqlx::Error::Decode(Box::new(error) as Source))?,
        staged_at: row::time(row, 1)?,
        at: row::time(row, 2)?,
        deliveries: row::count(row, 3)?,
        attempts: row::count(row, 4)?,
        reason: reason.and_then(|reason| reason.parse().ok()),
        error: row.try_get(7)?,
    })
}

fn cursor(row: &SqliteRow, room: Room) -> Result<Cursor, sqlx::Error> {
    let at = if room == Room::Ready { None } else { Some(row::time(row, 2)?) };
    Ok(Cursor { at, place: row.try_get(0)? })
}
