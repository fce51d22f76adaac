//! The view of those who look after follow-ups. What state one is in is told by where it is. Looks go through connections that
//! cannot write, and wait for no writer.

use super::{
    SqliteStore, erase,
    error::store_error,
    moment::micros,
    page::{table, time},
    queues::Queue,
    row::{self, COLUMNS, limit},
};
use async_trait::async_trait;
use postrider_core::{
    Error, MessageId, QueueName, SubjectId, TenantId,
    follow_up::{Docket, Erased, FollowUps, Status, StatusCounts, Which},
    inspect::{Action, Room},
    store::Source,
};
use sqlx::{Row, sqlite::SqliteRow};

/// Where the columns of the message begin.
const FIRST: usize = 5;

/// The state of a follow-up `m`, by its room. It is in flight also when its lease has lapsed.
fn status(room: Room) -> &'static str {
    match room {
        Room::Ready => {
            "case when m.token is not null then 'in_flight' when m.attempts > 0 then 'failed' \
               when m.due_at > {now} then 'scheduled' else 'pending' end"
        }
        Room::Later => {
            "case when m.attempts > 0 then 'failed' when m.due_at > {now} then 'scheduled' else 'pending' end"
        }
        Room::Dead => "'abandoned'",
        Room::Archive => "'succeeded'",
    }
}

/// All rooms in one statement: what moves meanwhile is counted once.
pub(super) fn counts_template() -> String {
    let rooms = [
        (Room::Ready, "indexed by {ready_free} where m.token is null"),
        (Room::Ready, "indexed by {ready_leased} where m.token is not null"),
        (Room::Later, "indexed by {later_due} where true"),
        (Room::Dead, "indexed by {dead_failed} where true"),
        (Room::Archive, "indexed by {archive_page} where true"),
    ];
    let rooms = rooms.map(|(room, found)| {
        format!("select {} as status from {} m {found} and m.queue = ?1", status(room), table(room))
    });
    format!("select status, count(*) from ({}) group by status", rooms.join(" union all "))
}

/// Columns: staged_at, time, deliveries, status, error, and those of the message.
fn select(room: Room, indexed: &str) -> String {
    format!(
        "select m.staged_at, m.{}, m.deliveries, {}, m.last_error, {COLUMNS} from {} m {indexed} where m.queue = ?1",
        time(room),
        status(room),
        table(room)
    )
}

pub(super) fn abandoned_template() -> String {
    format!("{} order by m.failed_at, m.id limit ?2", select(Room::Dead, "indexed by {dead_failed}"))
}

pub(super) fn scheduled_template() -> String {
    format!(
        "{} and m.due_at > {{now}} and m.attempts = 0 order by m.due_at, m.id limit ?2",
        select(Room::Later, "indexed by {later_due}")
    )
}

/// No index has the time of staging, which nobody else asks for: all that has not succeeded is looked at.
fn overdue_template() -> String {
    let rooms = [Room::Ready, Room::Later, Room::Dead]
        .map(|room| format!("{} and m.staged_at < {{now}} - ?3", select(room, "")));
    format!("{} order by 1 limit ?2", rooms.join(" union all "))
}

#[async_trait]
impl FollowUps for SqliteStore {
    async fn status_counts(&self, queue: &QueueName) -> Result<StatusCounts, Error> {
        let mut counts = StatusCounts::default();
        let Some(queue) = self.queue(queue).await? else { return Ok(counts) };
        let sql = self.inner.names.sql(&counts_template());
        let rows =
            sql.query().bind(queue.number).fetch_all(&self.inner.readers).await.map_err(store_error)?;
        for row in &rows {
            counts.extend([counted(row).map_err(store_error)?]);
        }
        Ok(counts)
    }

    async fn dockets(&self, queue: &QueueName, which: Which, most: usize) -> Result<Vec<Docket>, Error> {
        let Some(queue) = self.queue(queue).await? else { return Ok(Vec::new()) };
        let (template, age) = match which {
            Which::Abandoned => (abandoned_template(), None),
            Which::Scheduled => (scheduled_template(), None),
            Which::Overdue(age) => (overdue_template(), Some(micros(age))),
        };
        let sql = self.inner.names.sql(&template);
        let query = sql.query().bind(queue.number).bind(limit(most));
        let query = if age.is_some() { query.bind(age) } else { query };
        let rows = query.fetch_all(&self.inner.readers).await.map_err(store_error)?;
        rows.iter().map(|row| docket(row, &queue).map_err(store_error)).collect()
    }

    async fn erase_subject(
        &self,
        tenant: Option<&TenantId>,
        subject: &SubjectId,
        action: &Action,
    ) -> Result<Erased, Error> {
        action.check()?;
        let mut write = self.inner.writer.begin(&self.inner.names).await?;
        let erased = erase::subject(&mut write, &self.inner.names, tenant, subject, action).await?;
        write.commit().await?;
        Ok(erased)
    }
}

fn counted(row: &SqliteRow) -> Result<(Status, u64), sqlx::Error> {
    Ok((named(row.try_get(0)?)?, row.try_get::<i64, _>(1)?.unsigned_abs()))
}

fn named(name: &str) -> Result<Status, sqlx::Error> {
    let status = Status::ALL.into_iter().find(|status| status.as_str() == name);
    status.ok_or_else(|| sqlx::Error::Decode(Source::from(format!("{name:?} is no status"))))
}

fn docket(row: &SqliteRow, queue: &Queue) -> Result<Docket, sqlx::Error> {
    let message = row::message(row, FIRST, &queue.name)?;
    Ok(Docket {
        id: MessageId::from_uuid(row.try_get(FIRST)?),
        message,
        status: named(row.try_get(3)?)?,
        staged_at: row::time(row, 0)?,
        at: row::time(row, 1)?,
        deliveries: row::count(row, 2)?,
        error: row.try_get(4)?,
    })
}
