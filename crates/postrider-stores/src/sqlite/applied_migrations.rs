//! The record of applied migrations.

use super::{SqliteNames, error::store_error, row};
use postrider_core::{Error, schema::AppliedMigration};
use sqlx::{Row, SqliteConnection, sqlite::SqliteRow};

/// The applied migrations in order, or `None` if there is no record.
pub(super) async fn read(
    connection: &mut SqliteConnection,
    names: &SqliteNames,
) -> Result<Option<Vec<AppliedMigration>>, Error> {
    let there = "select exists (select 1 from sqlite_schema where type = 'table' and name = ?1)";
    let there = sqlx::query_scalar(there).bind(format!("{}migration", names.prefix()));
    if !there.fetch_one(&mut *connection).await.map_err(store_error)? {
        return Ok(None);
    }
    // The driver writes whole seconds, as text.
    let sql = sql!(
        "select version, description, cast(strftime('%s', installed_on) as integer) * 1000000 from {migration} \
        where success order by version"
    );
    let rows = names.sql(&sql).query().fetch_all(connection).await.map_err(store_error)?;
    rows.iter().map(|row| applied(row).map_err(store_error)).collect::<Result<_, _>>().map(Some)
}

fn applied(row: &SqliteRow) -> Result<AppliedMigration, sqlx::Error> {
    Ok(AppliedMigration { number: row.try_get(0)?, name: row.try_get(1)?, at: row::time(row, 2)? })
}
