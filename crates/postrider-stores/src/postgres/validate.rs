//! Validation: compares the tables with the schema of this version.
//!
//! `catalog.sql` describes the existing objects, one line each; `expected.txt` is that description after a fresh migration, and a
//! test keeps it up to date. An expected object that is missing or different has drifted; other objects are ignored.

use super::{
    PostgresNames, applied_migrations,
    error::store_error,
    repair::{KINDS, SchemaRepair},
};
use crate::object_script::creation_order;
use postrider_core::{Error, schema::Drift};
use sqlx::{Executor, PgConnection, Row};
use std::collections::{BTreeMap, BTreeSet};

pub(super) const EXPECTED: &str = include_str!("expected.txt");

/// The objects that have drifted, in an order in which they can be fixed.
pub(super) async fn drift(connection: &mut PgConnection, names: &PostgresNames) -> Result<Vec<Drift>, Error> {
    let found = describe(connection, names).await?;
    let applied = applied(connection, names).await?;
    let repair = SchemaRepair::new(names, &found, applied);
    let drift = EXPECTED.lines().filter_map(|line| line.split_once('\t')).filter_map(|(object, expected)| {
        let found = found.get(object);
        (found.is_none_or(|found| found != expected)).then(|| Drift {
            object: object.to_owned(),
            expected: expected.to_owned(),
            found: found.cloned(),
            fix: repair.fix(object, expected, found.map(String::as_str)),
        })
    });
    let mut drift: Vec<_> = drift.collect();
    drift.sort_by_key(|drift| creation_order(&KINDS, &drift.object));
    Ok(drift)
}

/// The numbers of the applied migrations, if their record exists and may be read.
async fn applied(
    connection: &mut PgConnection,
    names: &PostgresNames,
) -> Result<Option<BTreeSet<i64>>, Error> {
    if applied_migrations::is_readable(connection, names).await? != Some(true) {
        return Ok(None);
    }
    let applied = applied_migrations::read(connection, names).await?;
    Ok(Some(applied.into_iter().map(|applied| applied.number).collect()))
}

/// The existing objects, without the schema and the prefix.
pub(super) async fn describe(
    connection: &mut PgConnection,
    names: &PostgresNames,
) -> Result<BTreeMap<String, String>, Error> {
    let sql = names.sql(&sql!(include_str!("catalog.sql")));
    // PostgreSQL prints the schema of a name in an expression unless it is on the search path.
    connection.execute("select set_config('search_path', 'pg_catalog', true)").await.map_err(store_error)?;
    let rows = sql
        .query()
        .persistent(false)
        .bind(names.schema())
        .bind(names.prefix())
        .fetch_all(&mut *connection)
        .await
        .map_err(store_error)?;
    let mut objects = BTreeMap::new();
    for row in rows {
        let object: String = row.try_get(0).map_err(store_error)?;
        let definition: Option<String> = row.try_get(1).map_err(store_error)?;
        objects.insert(object, plain(&definition.unwrap_or_default(), names));
    }
    Ok(objects)
}

fn plain(definition: &str, names: &PostgresNames) -> String {
    let definition = definition.replace(&format!("{}.{}", names.schema(), names.prefix()), "");
    definition.split_whitespace().collect::<Vec<_>>().join(" ")
}
