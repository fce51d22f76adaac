//! What mends a difference between the tables and what this version needs: the statements of the migrations that make the
//! object, read as they stand. SQLite cannot change a column: a table of another shape is moved aside.

use super::{Names, schema::MIGRATIONS, validate::EXPECTED};
use crate::{
    maker::{self, Maker},
    script::{items, statements},
};
use std::collections::{BTreeMap, BTreeSet};

pub(super) struct Mender<'m> {
    names: &'m Names,
    makers: BTreeMap<String, Maker>,
    found: &'m BTreeMap<String, String>,
    /// The migrations that were run.
    applied: BTreeSet<i64>,
}

/// What can be made before what.
pub(super) const KINDS: [&str; 5] = ["table", "column", "index", "view", "trigger"];

impl<'m> Mender<'m> {
    pub(super) fn new(
        names: &'m Names,
        found: &'m BTreeMap<String, String>,
        recorded: Option<BTreeSet<i64>>,
    ) -> Self {
        let applied = maker::applied(recorded, &MIGRATIONS, found);
        Self { names, makers: makers(), found, applied }
    }

    /// The statements that mend it; none where the migrations do.
    pub(super) fn fix(&self, object: &str, is_there: bool) -> Option<String> {
        let (kind, name) = object.split_once(' ')?;
        let template = match (kind, is_there) {
            ("table", false) => self.made(object)?,
            ("table", true) => self.anew(name)?,
            ("column", _) => self.column(name, is_there)?,
            (kind, true) => format!("drop {kind} {{{name}}};\n{}", self.made(object)?),
            (_, false) => self.made(object)?,
        };
        Some(self.names.render(&template))
    }

    fn maker(&self, object: &str) -> Option<&Maker> {
        self.makers.get(object).filter(|maker| self.applied.contains(&maker.version))
    }

    fn made(&self, object: &str) -> Option<String> {
        self.maker(object).map(Maker::text)
    }

    fn column(&self, name: &str, is_there: bool) -> Option<String> {
        let (table, column) = name.split_once('.')?;
        let object = format!("table {table}");
        if !self.found.contains_key(&object) {
            return self.made(&object);
        }
        let made = &self.maker(&object)?.statements;
        let item = items(made.first()?).into_iter().find(|item| item.split(' ').next() == Some(column));
        let later = made.iter().find(|statement| statement.contains(&format!(" add column {column} ")));
        match (is_there, item, later) {
            (false, _, Some(statement)) => Some(format!("{statement};")),
            // SQLite adds no column that must not be null, unless it has a default.
            (false, Some(item), None) if !item.contains(" not null") || item.contains(" default ") => {
                Some(format!("alter table {{{table}}} add column {item};"))
            }
            _ => self.anew(table),
        }
    }

    /// Moves the rows to a new table, as far as it has their columns. What hangs on the old one goes with it, and is missing then.
    fn anew(&self, table: &str) -> Option<String> {
        let made = self.made(&format!("table {table}"))?;
        let columns: Vec<_> = EXPECTED
            .lines()
            .filter_map(|line| line.split('\t').next()?.strip_prefix("column ")?.split_once('.'))
            .filter(|(of, column)| {
                *of == table && self.found.contains_key(&format!("column {table}.{column}"))
            })
            .map(|(_, column)| column)
            .collect();
        let columns = columns.join(", ");
        Some(format!(
            "pragma legacy_alter_table = on;\nalter table {{{table}}} rename to {{{table}_before}};\n{made}\n\
             insert or ignore into {{{table}}} ({columns}) select {columns} from {{{table}_before}};\n\
             drop table {{{table}_before}};"
        ))
    }
}

fn makers() -> BTreeMap<String, Maker> {
    let mut makers = BTreeMap::<String, Maker>::new();
    for (version, _, template) in MIGRATIONS {
        for statement in statements(template) {
            let words: Vec<_> = statement.split_whitespace().take(4).collect();
            let object = match &words[..] {
                ["create", "unique", "index", name] => format!("index {}", bare(name)),
                ["create", kind, name, ..] => format!("{kind} {}", bare(name)),
                ["alter" | "insert", _, name, ..] => format!("table {}", bare(name)),
                ["drop", kind, name, ..] => {
                    makers.remove(&format!("{kind} {}", bare(name)));
                    continue;
                }
                _ => String::new(),
            };
            makers.entry(object).or_default().add(version, statement);
        }
    }
    makers
}

/// `ready` of `{ready}`.
fn bare(word: &str) -> &str {
    word.trim_matches(['{', '}'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_that_is_expected_has_a_maker() {
        let makers = makers();
        assert!(!makers.contains_key(""), "{:?}", makers.get(""));
        for line in EXPECTED.lines() {
            let object = line.split('\t').next().unwrap();
            assert!(object.starts_with("column ") || makers.contains_key(object), "nobody makes {object}");
        }
    }
}
