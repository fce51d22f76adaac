//! The record that the migrations leave.

use super::{Names, error::store_error, row::Moment};
use postrider_core::{Error, schema::Applied};
use sqlx::{PgConnection, Row, postgres::PgRow};

/// By the catalog: whoever may not use the schema may not ask by name.
const IS_READABLE: &str = "select has_schema_privilege(n.oid, 'usage') and has_table_privilege(c.oid, 'select') \
    from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace \
    where n.nspname = $1 and c.relname = $2 || 'migration'";

/// Whether the record may be read, if there is one.
pub(super) async fn is_readable(connection: &mut PgConnection, names: &Names) -> Result<Option<bool>, Error> {
    let query = sqlx::query_scalar(IS_READABLE).persistent(false).bind(names.schema()).bind(names.prefix());
    query.fetch_optional(connection).await.map_err(store_error)
}

/// What was run, the last one last.
pub(super) async fn read(connection: &mut PgConnection, names: &Names) -> Result<Vec<Applied>, Error> {
    let sql = "select version, description, installed_on from {migration} where success order by version";
    let rows = names.sql(sql).query().persistent(false).fetch_all(connection).await.map_err(store_error)?;
    rows.iter().map(|row| applied(row).map_err(store_error)).collect()
}

fn applied(row: &PgRow) -> Result<Applied, sqlx::Error> {
    Ok(Applied { number: row.try_get(0)?, name: row.try_get(1)?, at: row.try_get::<Moment, _>(2)?.0 })
}
