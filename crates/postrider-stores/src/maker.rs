//! What the stores share in mending their tables: which statements make an object, and what is made before what.

use postrider_core::schema::{Applied, Migrations, Pending};
use std::collections::{BTreeMap, BTreeSet};

/// A migration: its number, its title and its statements.
pub(crate) type Script = (i64, &'static str, &'static str);

/// The statements that make an object, as templates, and the migration that has the last of them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Maker {
    pub(crate) version: i64,
    pub(crate) statements: Vec<String>,
}

impl Maker {
    pub(crate) fn add(&mut self, version: i64, statement: &str) {
        self.version = version;
        self.statements.push(statement.to_owned());
    }

    /// All of them, as they are run.
    pub(crate) fn text(&self) -> String {
        self.statements.iter().map(|statement| format!("{statement};")).collect::<Vec<_>>().join("\n")
    }
}

/// Where an object comes in the order in which objects can be made: that of its kind among `kinds`.
pub(crate) fn turn(kinds: &[&str], object: &str) -> usize {
    let kind = object.split(' ').next().unwrap_or_default();
    kinds.iter().position(|each| *each == kind).unwrap_or(kinds.len())
}

/// The migrations that were run. Tables that were made by another tool have no record of them, and migrating would make them
/// twice.
pub(crate) fn applied(
    recorded: Option<BTreeSet<i64>>,
    migrations: &[Script],
    found: &BTreeMap<String, String>,
) -> BTreeSet<i64> {
    recorded.unwrap_or_else(|| {
        let is_there = found.keys().any(|object| object.starts_with("table "));
        migrations.iter().filter(|_| is_there).map(|(version, ..)| *version).collect()
    })
}

/// What was run of these migrations, and what was not.
pub(crate) fn standing(migrations: &[Script], applied: Vec<Applied>) -> Migrations {
    let is_pending = |number: i64| applied.iter().all(|applied| applied.number != number);
    let pending = migrations.iter().filter(|(number, ..)| is_pending(*number));
    let pending = pending.map(|(number, name, _)| Pending { number: *number, name: (*name).to_owned() });
    let needed = migrations.iter().map(|(number, ..)| *number).max().unwrap_or_default();
    Migrations { pending: pending.collect(), applied, needed }
}
