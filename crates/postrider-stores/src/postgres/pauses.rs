//! Queues and destinations that operators have paused.

use super::{PostgresStore, error::store_error};
use crate::template::Template;
use postrider_core::{Error, Pausable, PauseRecord, inspect::Action};
use sqlx::{Row, postgres::PgRow};
use time::OffsetDateTime;

const PAUSED: &str =
    "select p.kind, p.name, p.since, p.actor, p.why from {pause} p order by p.since, p.kind, p.name";
const PAUSE: &str = "select {pause_work}($1, $2, $3, $4)";
const RESUME: &str = "select {resume_work}($1, $2, $3, $4)";

impl PostgresStore {
    pub(super) async fn paused_work(&self) -> Result<Vec<PauseRecord>, Error> {
        let sql = self.inner.names.sql(&sql!(PAUSED));
        let rows = self.inner.connections.run(sql.query()).await?;
        rows.iter().map(|row| paused(row).map_err(store_error)).collect()
    }

    pub(super) async fn pause_work(&self, what: &Pausable, action: &Action) -> Result<bool, Error> {
        self.change_pause(&sql!(PAUSE), what, action).await
    }

    pub(super) async fn resume_work(&self, what: &Pausable, action: &Action) -> Result<bool, Error> {
        self.change_pause(&sql!(RESUME), what, action).await
    }

    async fn change_pause(&self, sql: &Template, what: &Pausable, action: &Action) -> Result<bool, Error> {
        action.check()?;
        let sql = self.inner.names.sql(sql);
        let query = sql.query().bind(what.kind()).bind(what.name()).bind(&action.actor).bind(&action.why);
        let changed = self.inner.connections.run_for_one(query).await?.try_get(0).map_err(store_error)?;
        // Other processes notice within a second, and this one at once.
        self.inner.queues.invalidate();
        Ok(changed)
    }
}

fn paused(row: &PgRow) -> Result<PauseRecord, sqlx::Error> {
    Ok(PauseRecord {
        what: Pausable::stored(row.try_get(0)?, row.try_get(1)?),
        since: row.try_get::<OffsetDateTime, _>(2)?.into(),
        action: Action { actor: row.try_get(3)?, why: row.try_get(4)? },
    })
}
