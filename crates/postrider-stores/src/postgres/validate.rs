//! Comparing the tables with what this version needs.
//!
//! `catalog.sql` describes what is there, one line per object; `expected.txt` is that description of a fresh migration, and a
//! test keeps it so. What is expected and not there, or there in another shape, has drifted; what is there besides is
//! nobody's business.

use super::{
    Names,
    error::store_error,
    mend::{KINDS, Mender},
    record,
};
use crate::maker::turn;
use postrider_core::{Error, schema::Drift};
use sqlx::{Executor, PgConnection, Row};
use std::collections::{BTreeMap, BTreeSet};

pub(super) const EXPECTED: &str = include_str!("expected.txt");

/// What has drifted, in an order in which it can be mended.
pub(super) async fn drift(connection: &mut PgConnection, names: &Names) -> Result<Vec<Drift>, Error> {
    let found = describe(connection, names).await?;
    let applied = applied(connection, names).await?;
    let mender = Mender::new(names, &found, applied);
    let drift = EXPECTED.lines().filter_map(|line| line.split_once('\t')).filter_map(|(object, expected)| {
        let found = found.get(object);
        (found.is_none_or(|found| found != expected)).then(|| Drift {
            object: object.to_owned(),
            expected: expected.to_owned(),
            found: found.cloned(),
            fix: mender.fix(object, expected, found.map(String::as_str)),
        })
    });
    let mut drift: Vec<_> = drift.collect();
    drift.sort_by_key(|drift| turn(&KINDS, &drift.object));
    Ok(drift)
}

/// The migrations that were run, if they left a record that may be read.
async fn applied(connection: &mut PgConnection, names: &Names) -> Result<Option<BTreeSet<i64>>, Error> {
    if record::is_readable(connection, names).await? != Some(true) {
        return Ok(None);
    }
    let applied = record::read(connection, names).await?;
    Ok(Some(applied.into_iter().map(|applied| applied.number).collect()))
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
