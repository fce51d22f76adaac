//! Validation: compares the tables with the schema of this version.
//!
//! `catalog.sql` describes the existing objects, one line each; `expected.txt` is that description after a fresh migration, and a
//! test keeps it up to date. An expected object that is missing or different has drifted; other objects are ignored. Where nothing has
//! drifted, the sequences are compared with the rows that have their values.

use super::{
    PostgresNames, applied_migrations,
    error::store_error,
    repair::{KINDS, SchemaRepair},
};
use crate::{object_script::creation_order, template::Template};
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
    if drift.is_empty() {
        drift.extend(sequence_drifts(connection, names).await?);
    }
    drift.sort_by_key(|drift| creation_order(&KINDS, &drift.object));
    Ok(drift)
}

/// Whether the role may read what the next statement reads.
const POSITIONS_ARE_READABLE: &str = "select has_table_privilege('{ready}', 'select') and has_table_privilege('{dead}', 'select') \
    and has_table_privilege('{queue}', 'select') and has_sequence_privilege('{message_position}', 'select')";

/// The last position drawn, and the greatest one in a table whose rows keep theirs: one probe of an index for each queue.
const POSITIONS: &str = "select coalesce(pg_sequence_last_value('{message_position}'), 0), coalesce(max(greatest( \
      (select r.id from {ready} r where r.queue = q.id order by r.queue desc, r.id desc limit 1), \
      (select d.id from {dead} d where d.queue = q.id order by d.queue desc, d.id desc limit 1))), 0) from {queue} q";

const AUDIT_IS_READABLE: &str = "select has_table_privilege('{audit}', 'select') \
    and has_sequence_privilege(pg_get_serial_sequence('{audit}', 'id'), 'select')";

/// The last number of an audit row drawn, and the greatest one in the table.
const AUDIT: &str = "select coalesce(pg_sequence_last_value(pg_get_serial_sequence('{audit}', 'id')::regclass), 0), \
    coalesce((select a.id from {audit} a order by a.id desc limit 1), 0)";

/// A sequence and the rows that have its values.
struct NumberedRows {
    object: &'static str,
    is_readable: Template,
    /// The last value drawn and the greatest one in use.
    values: Template,
    /// The name of the sequence, as an SQL expression.
    sequence: Template,
}

/// The sequences that are behind their tables, as after a restore or a switch-over that does not carry sequences: staging, or an
/// operator's action, then fails, because the next values are in use.
async fn sequence_drifts(connection: &mut PgConnection, names: &PostgresNames) -> Result<Vec<Drift>, Error> {
    let rows = [
        NumberedRows {
            object: "sequence message_position",
            is_readable: sql!(POSITIONS_ARE_READABLE),
            values: sql!(POSITIONS),
            sequence: sql!("'{message_position}'"),
        },
        NumberedRows {
            object: "sequence of audit.id",
            is_readable: sql!(AUDIT_IS_READABLE),
            values: sql!(AUDIT),
            sequence: sql!("pg_get_serial_sequence('{audit}', 'id')"),
        },
    ];
    let mut drifts = Vec::new();
    for rows in rows {
        drifts.extend(sequence_drift(connection, names, rows).await?);
    }
    Ok(drifts)
}

async fn sequence_drift(
    connection: &mut PgConnection,
    names: &PostgresNames,
    rows: NumberedRows,
) -> Result<Option<Drift>, Error> {
    let is_readable = names.sql(&rows.is_readable);
    let row = is_readable.query().persistent(false).fetch_one(&mut *connection).await.map_err(store_error)?;
    if !row.try_get::<bool, _>(0).map_err(store_error)? {
        return Ok(None);
    }
    let values = names.sql(&rows.values);
    let row = values.query().persistent(false).fetch_one(&mut *connection).await.map_err(store_error)?;
    let (last, greatest): (i64, i64) =
        (row.try_get(0).map_err(store_error)?, row.try_get(1).map_err(store_error)?);
    let setval = sql!(
        "select setval({sequence}, {greatest});",
        sequence = rows.sequence,
        greatest = greatest.unsigned_abs()
    );
    Ok((last < greatest).then(|| Drift {
        object: rows.object.to_owned(),
        expected: format!("a last value of at least {greatest}, the greatest in use"),
        found: Some(format!("{last}")),
        fix: Some(names.render(setval.as_str())),
    }))
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
