//! The checkup of the server: finds what would lose messages, delay them or make every call more expensive.
//!
//! Each group reads facts in one statement or two and assesses them in a function of its own, without the server, so that tests can
//! cover conditions that cannot be created on a shared server. Facts come from the catalog and the statistics: no table of
//! messages is read, however large it is.

mod encryption;
mod indexes;
mod notifications;
mod privileges;
mod queues;
mod server;
mod settings;
mod vacuum;
mod vacuum_blockers;

use super::{PostgresStore, error::store_error};
use postrider_core::{CheckupRequest, Error, Finding};
use sqlx::{
    FromRow, Postgres,
    postgres::{PgArguments, PgRow},
    query::Query,
};

impl PostgresStore {
    pub(super) async fn checkup(&self, request: &CheckupRequest) -> Result<Vec<Finding>, Error> {
        let role = request.role.as_deref().map(str::parse).transpose()?;
        if let Some(pooler) = notifications::pooler(self).await? {
            return Ok(vec![pooler]);
        }
        let groups = [
            ("server", server::findings(self).await),
            ("connection", encryption::findings(self).await),
            ("settings", settings::findings(self).await),
            ("queues", queues::findings(self).await),
            ("indexes", indexes::findings(self).await),
            ("vacuum", vacuum::findings(self).await),
            ("transactions", vacuum_blockers::findings(self, request.longest_transaction).await),
            ("privileges", privileges::findings(self, role).await),
            ("signals", notifications::findings(self).await),
        ];
        let mut findings = Vec::new();
        for (group, result) in groups {
            match result {
                Ok(found) => findings.extend(found),
                Err(error) => findings.push(
                    Finding::warning("unchecked", group)
                        .because(format!("the check failed: {error}"))
                        .fixed_by("connect as the owner of the tables, and run the check again"),
                ),
            }
        }
        Ok(findings)
    }
}

impl PostgresStore {
    /// The rows of a statement that reads facts.
    async fn facts<T>(&self, query: Query<'_, Postgres, PgArguments>) -> Result<Vec<T>, Error>
    where
        T: for<'r> FromRow<'r, PgRow>,
    {
        let rows = self.inner.connections.run(query).await?;
        rows.iter().map(|row| T::from_row(row).map_err(store_error)).collect()
    }

    /// The only row of a statement that reads facts.
    async fn fact<T>(&self, query: Query<'_, Postgres, PgArguments>) -> Result<T, Error>
    where
        T: for<'r> FromRow<'r, PgRow>,
    {
        let row = self.inner.connections.run_for_one(query).await?;
        T::from_row(&row).map_err(store_error)
    }
}
