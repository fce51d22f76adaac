//! The statements that create each object of the schema, and the status of the migrations: shared by the stores that validate and
//! repair their tables.

use postrider_core::schema::{AppliedMigration, Migrations, PendingMigration};
use std::collections::{BTreeMap, BTreeSet};

/// A migration: its number, its name and its SQL script.
pub(crate) type MigrationScript = (i64, &'static str, &'static str);

/// The statements that create one object, as templates, and the last migration that has one of them.
#[derive(Debug, Clone, Default)]
pub(crate) struct ObjectScript {
    pub(crate) version: i64,
    pub(crate) statements: Vec<String>,
}

impl ObjectScript {
    pub(crate) fn add(&mut self, version: i64, statement: &str) {
        self.version = version;
        self.statements.push(statement.to_owned());
    }

    /// All statements, as one script.
    pub(crate) fn text(&self) -> String {
        self.statements.iter().map(|statement| format!("{statement};")).collect::<Vec<_>>().join("\n")
    }
}

/// The rank of an object in the order of creation: that of its kind among `kinds`.
pub(crate) fn creation_order(kinds: &[&str], object: &str) -> usize {
    let kind = object.split(' ').next().unwrap_or_default();
    kinds.iter().position(|each| *each == kind).unwrap_or(kinds.len())
}

/// The numbers of the applied migrations. Tables that another tool created have no record of migrations; then all count as applied,
/// because migrating would create the tables twice.
pub(crate) fn applied(
    recorded: Option<BTreeSet<i64>>,
    migrations: &[MigrationScript],
    found: &BTreeMap<String, String>,
) -> BTreeSet<i64> {
    recorded.unwrap_or_else(|| {
        let has_tables = found.keys().any(|object| object.starts_with("table "));
        migrations.iter().filter(|_| has_tables).map(|(version, ..)| *version).collect()
    })
}

/// The status of these migrations: applied and pending.
pub(crate) fn status(migrations: &[MigrationScript], applied: Vec<AppliedMigration>) -> Migrations {
    let is_pending = |number: i64| applied.iter().all(|applied| applied.number != number);
    let pending = migrations.iter().filter(|(number, ..)| is_pending(*number));
    let pending =
        pending.map(|(number, name, _)| PendingMigration { number: *number, name: (*name).to_owned() });
    let needed = migrations.iter().map(|(number, ..)| *number).max().unwrap_or_default();
    Migrations { pending: pending.collect(), applied, needed }
}
