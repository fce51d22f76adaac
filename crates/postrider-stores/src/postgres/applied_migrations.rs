//! The table in which the applied migrations are recorded.

use super::{PostgresNames, error::store_error, row::Moment};
use postrider_core::{Error, schema::AppliedMigration};
use sqlx::{PgConnection, Row, postgres::PgRow};

/// Through the catalog: a role without usage on the schema cannot look up the table by name.
const IS_READABLE: &str = "select has_schema_privilege(n.oid, 'usage') and has_table_privilege(c.oid, 'select') \
    from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace \
    where n.nspname = $1 and c.relname = $2 || 'migration'";

/// Whether the record may be read; `None` if it does not exist.
pub(super) async fn is_readable(
    connection: &mut PgConnection,
    names: &PostgresNames,
) -> Result<Option<bool>, Error> {
    let query = sqlx::query_scalar(IS_READABLE).persistent(false).bind(names.schema()).bind(names.prefix());
    query.fetch_optional(connection).await.map_err(store_error)
}

/// The applied migrations, in order.
pub(super) async fn read(
    connection: &mut PgConnection,
    names: &PostgresNames,
) -> Result<Vec<AppliedMigration>, Error> {
    let sql =
        sql!("select version, description, installed_on from {migration} where success order by version");
    let rows = names.sql(&sql).query().persistent(false).fetch_all(connection).await.map_err(store_error)?;
    rows.iter().map(|row| applied(row).map_err(store_error)).collect()
}

fn applied(row: &PgRow) -> Result<AppliedMigration, sqlx::Error> {
    Ok(AppliedMigration {
        number: row.try_get(0)?,
        name: row.try_get(1)?,
        at: row.try_get::<Moment, _>(2)?.0,
    })
}
