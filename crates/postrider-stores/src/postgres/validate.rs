//! Comparing the tables with what this version needs.
//!
//! `catalog.sql` describes what is there, one line per object; `expected.txt` is that description of a fresh migration, and a
//! test keeps it so. What is expected and not there, or there in another shape, has drifted; what is there besides is
//! nobody's business.

use super::{Names, error::store_error};
use postrider_core::{Error, schema::Drift};
use sqlx::{Executor, PgConnection, Row};
use std::collections::BTreeMap;

const EXPECTED: &str = include_str!("expected.txt");

pub(super) async fn drift(connection: &mut PgConnection, names: &Names) -> Result<Vec<Drift>, Error> {
    let found = describe(connection, names).await?;
    let drift = EXPECTED.lines().filter_map(|line| line.split_once('\t')).filter_map(|(object, expected)| {
        let found = found.get(object);
        (found.is_none_or(|found| found != expected)).then(|| Drift {
            object: object.to_owned(),
            expected: expected.to_owned(),
            found: found.cloned(),
        })
    });
    Ok(drift.collect())
}

/// What is there, with our names taken out of it.
pub(super) async fn describe(
    connection: &mut PgConnection,
    names: &Names,
) -> Result<BTreeMap<String, String>, Error> {
    let sql = names.sql(include_str!("catalog.sql"));
    // Expressions are printed with the schema of what they name, unless it is on the path.
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

fn plain(definition: &str, names: &Names) -> String {
    let definition = definition.replace(&format!("{}.{}", names.schema(), names.prefix()), "");
    definition.split_whitespace().collect::<Vec<_>>().join(" ")
}
