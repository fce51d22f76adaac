//! Looking the server over: what would lose messages, hold them up or make every call dearer.
//!
//! Each group reads facts in one statement or two and judges them in a function of its own, without the server, so that what
//! cannot be planted on a server that others use can be judged in a test. Facts are those of the catalog and of the statistics:
//! no table of ours is read, however large it is.

mod hearing;
mod holders;
mod indexes;
mod rights;
mod server;
mod settings;
mod vacuum;

use super::{PostgresStore, error::store_error};
use async_trait::async_trait;
use postrider_core::{Checkup, CheckupRequest, Error, Finding};
use sqlx::{
    FromRow, Postgres,
    postgres::{PgArguments, PgRow},
    query::Query,
};

#[async_trait]
impl Checkup for PostgresStore {
    async fn checkup(&self, request: &CheckupRequest) -> Result<Vec<Finding>, Error> {
        let role = request.role.as_deref().map(str::parse).transpose()?;
        if let Some(pooler) = hearing::pooler(self).await? {
            return Ok(vec![pooler]);
        }
        let looks = [
            ("server", server::findings(self).await),
            ("settings", settings::findings(self).await),
            ("indexes", indexes::findings(self).await),
            ("vacuum", vacuum::findings(self).await),
            ("transactions", holders::findings(self, request.longest_transaction).await),
            ("rights", rights::findings(self, role).await),
            ("signals", hearing::findings(self).await),
        ];
        let mut findings = Vec::new();
        for (what, found) in looks {
            match found {
                Ok(found) => findings.extend(found),
                Err(error) => findings.push(
                    Finding::warning("unchecked", what)
                        .because(format!("it cannot be looked at: {error}"))
                        .fixed_by("connect as the owner of the tables, and look again"),
                ),
            }
        }
        Ok(findings)
    }
}

impl PostgresStore {
    /// Facts as rows of a type.
    async fn facts<T>(&self, query: Query<'_, Postgres, PgArguments>) -> Result<Vec<T>, Error>
    where
        T: for<'r> FromRow<'r, PgRow>,
    {
        let rows = self.inner.connections.run(query).await?;
        rows.iter().map(|row| T::from_row(row).map_err(store_error)).collect()
    }

    /// The one row of facts.
    async fn fact<T>(&self, query: Query<'_, Postgres, PgArguments>) -> Result<T, Error>
    where
        T: for<'r> FromRow<'r, PgRow>,
    {
        let row = self.inner.connections.run_for_one(query).await?;
        T::from_row(&row).map_err(store_error)
    }
}
