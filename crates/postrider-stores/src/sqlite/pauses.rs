//! Pauses of queues and destinations, set by operators.

use super::{SqliteNames, SqliteStore, error::store_error, queues, row, writer::Write};
use postrider_core::{Error, Pausable, PauseRecord, inspect::Action};
use sqlx::{Row, sqlite::SqliteRow};

const PAUSED: &str = "select kind, name, since, actor, why from {pause} order by since, kind, name";
const PAUSE: &str =
    "insert into {pause} (kind, name, since, actor, why) values (?1, ?2, ?3, ?4, ?5) on conflict do nothing";
const RESUME: &str = "delete from {pause} where kind = ?1 and name = ?2";

impl SqliteStore {
    pub(super) async fn paused_work(&self) -> Result<Vec<PauseRecord>, Error> {
        let sql = self.inner.names.sql(&sql!(PAUSED));
        let rows = sql.query().fetch_all(&self.inner.readers).await.map_err(store_error)?;
        rows.iter().map(|row| paused(row).map_err(store_error)).collect()
    }

    pub(super) async fn pause_work(&self, what: &Pausable, action: &Action) -> Result<bool, Error> {
        action.check()?;
        let names = &self.inner.names;
        let mut write = self.inner.writer.begin(names).await?;
        let now = write.now;
        let sql = names.sql(&sql!(PAUSE));
        let query = sql.query().bind(what.kind()).bind(what.name());
        let query = query.bind(now).bind(&action.actor).bind(&action.why);
        let is_new = query.execute(&mut write.connection).await.map_err(store_error)?.rows_affected() > 0;
        if is_new {
            write_audit_row(&mut write, names, "pause", what, action).await?;
        }
        write.commit().await?;
        Ok(is_new)
    }

    pub(super) async fn resume_work(&self, what: &Pausable, action: &Action) -> Result<bool, Error> {
        action.check()?;
        let names = &self.inner.names;
        let mut write = self.inner.writer.begin(names).await?;
        let sql = names.sql(&sql!(RESUME));
        let query = sql.query().bind(what.kind()).bind(what.name());
        let was_there = query.execute(&mut write.connection).await.map_err(store_error)?.rows_affected() > 0;
        if was_there {
            let queue = write_audit_row(&mut write, names, "resume", what, action).await?;
            queues::signal(&mut write.connection, names, queue).await?;
        }
        write.commit().await?;
        Ok(was_there)
    }
}

/// Writes the audit row. Returns the number of the queue, if a queue was paused or resumed; a queue that does not exist yet is
/// created, as a declaration does.
async fn write_audit_row(
    write: &mut Write,
    names: &SqliteNames,
    verb: &str,
    what: &Pausable,
    action: &Action,
) -> Result<Option<i64>, Error> {
    let (queue, destination) = match what {
        Pausable::Queue(name) => {
            let known = queues::get_or_create(&mut write.connection, names, &[name]).await?;
            (known.get(name).map(|queue| queue.number), None)
        }
        Pausable::Destination(name) => (None, Some(name.as_str())),
    };
    let sql = names.sql(&sql!(
        "insert into {audit} (at, actor, why, verb, queue, destination) values (?1, ?2, ?3, ?4, ?5, ?6)"
    ));
    let query = sql.query().bind(write.now).bind(&action.actor).bind(&action.why).bind(verb);
    let query = query.bind(queue).bind(destination);
    query.execute(&mut write.connection).await.map_err(store_error)?;
    Ok(queue)
}

fn paused(row: &SqliteRow) -> Result<PauseRecord, sqlx::Error> {
    Ok(PauseRecord {
        what: Pausable::stored(row.try_get(0)?, row.try_get(1)?),
        since: row::time(row, 2)?,
        action: Action { actor: row.try_get(3)?, why: row.try_get(4)? },
    })
}
