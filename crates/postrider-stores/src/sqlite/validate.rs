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
use sqlx::{Row, SqliteConnection};
use std::collections::BTreeMap;

pub(super) const EXPECTED: &str = include_str!("expected.txt");

/// What has drifted, in an order in which it can be mended.
pub(super) async fn drift(connection: &mut SqliteConnection, names: &Names) -> Result<Vec<Drift>, Error> {
    let found = describe(connection, names).await?;
    let applied = record::read(connection, names).await?;
    let applied = applied.map(|applied| applied.into_iter().map(|applied| applied.number).collect());
    let mender = Mender::new(names, &found, applied);
    let drift = EXPECTED.lines().filter_map(|line| line.split_once('\t')).filter_map(|(object, expected)| {
        let found = found.get(object);
        (found.is_none_or(|found| found != expected)).then(|| Drift {
            object: object.to_owned(),
            expected: expected.to_owned(),
            found: found.cloned(),
            fix: mender.fix(object, found.is_some()),
        })
    });
    let mut drift: Vec<_> = drift.collect();
    drift.sort_by_key(|drift| turn(&KINDS, &drift.object));
    Ok(drift)
}

/// What is there, with our prefix taken out of it.
pub(super) async fn describe(
    connection: &mut SqliteConnection,
    names: &Names,
) -> Result<BTreeMap<String, String>, Error> {
    let sql = names.sql(include_str!("catalog.sql"));
    let rows = sql.query().bind(names.prefix()).fetch_all(connection).await.map_err(store_error)?;
    let mut objects = BTreeMap::new();
    for row in rows {
        let object: String = row.try_get(0).map_err(store_error)?;
        let definition: String = row.try_get(1).map_err(store_error)?;
        let plain = plain(&definition, names);
        // A trigger is a program: it is compared whole, and too long to be printed.
        let definition = if object.starts_with("trigger ") { fingerprint(&plain) } else { plain };
        objects.insert(object, definition);
    }
    Ok(objects)
}

fn plain(definition: &str, names: &Names) -> String {
    let definition = definition.replace(&format!("\"{}", names.prefix()), "").replace('"', "");
    definition.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// FNV-1a: what differs by accident differs here, and it is the same on every machine.
fn fingerprint(text: &str) -> String {
    let mixed = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{mixed:016x}")
}
