//! Comparing the schema with the one that this version needs.
//!
//! `catalog.sql` describes the objects in the database, one line each; `expected.txt` is that description of a fresh migration, and
//! a test keeps it up to date. An expected object that is missing or different has drifted; additional objects are ignored.

use super::{
    SqliteNames, applied_migrations,
    error::store_error,
    repair::{KINDS, SchemaRepair},
};
use crate::object_script::creation_order;
use postrider_core::{Error, schema::Drift};
use sqlx::{Row, SqliteConnection};
use std::collections::BTreeMap;

pub(super) const EXPECTED: &str = include_str!("expected.txt");

/// The drifted objects, in an order in which they can be repaired.
pub(super) async fn drift(
    connection: &mut SqliteConnection,
    names: &SqliteNames,
) -> Result<Vec<Drift>, Error> {
    let found = describe(connection, names).await?;
    let applied = applied_migrations::read(connection, names).await?;
    let applied = applied.map(|applied| applied.into_iter().map(|applied| applied.number).collect());
    let repair = SchemaRepair::new(names, &found, applied);
    let drift = EXPECTED.lines().filter_map(|line| line.split_once('\t')).filter_map(|(object, expected)| {
        let found = found.get(object);
        (found.is_none_or(|found| found != expected)).then(|| Drift {
            object: object.to_owned(),
            expected: expected.to_owned(),
            found: found.cloned(),
            fix: repair.fix(object, found.is_some()),
        })
    });
    let mut drift: Vec<_> = drift.collect();
    drift.sort_by_key(|drift| creation_order(&KINDS, &drift.object));
    Ok(drift)
}

/// The objects in the database, without our prefix.
pub(super) async fn describe(
    connection: &mut SqliteConnection,
    names: &SqliteNames,
) -> Result<BTreeMap<String, String>, Error> {
    let sql = names.sql(&sql!(include_str!("catalog.sql")));
    let rows = sql.query().bind(names.prefix()).fetch_all(connection).await.map_err(store_error)?;
    let mut objects = BTreeMap::new();
    for row in rows {
        let object: String = row.try_get(0).map_err(store_error)?;
        let definition: String = row.try_get(1).map_err(store_error)?;
        let normalize = normalize(&definition, names);
        // A trigger is a program: it is compared as a whole, and too long to be printed.
        let definition = if object.starts_with("trigger ") { fingerprint(&normalize) } else { normalize };
        objects.insert(object, definition);
    }
    Ok(objects)
}

fn normalize(definition: &str, names: &SqliteNames) -> String {
    let definition = definition.replace(&format!("\"{}", names.prefix()), "").replace('"', "");
    definition.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// FNV-1a: detects accidental differences, and is the same on every machine.
fn fingerprint(text: &str) -> String {
    let mixed = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{mixed:016x}")
}
