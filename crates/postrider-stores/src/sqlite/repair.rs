//! Repair of schema drift: the statements of the migrations that create the object, taken from the scripts themselves. SQLite cannot
//! change a column: a table with a different shape is rebuilt.

use super::{SqliteNames, schema::MIGRATIONS, validate::EXPECTED};
use crate::{
    object_script::{self, ObjectScript},
    script::{items, statements},
    template::Template,
};
use std::collections::{BTreeMap, BTreeSet};

pub(super) struct SchemaRepair<'m> {
    names: &'m SqliteNames,
    scripts: BTreeMap<String, ObjectScript>,
    found: &'m BTreeMap<String, String>,
    /// The numbers of the applied migrations.
    applied: BTreeSet<i64>,
}

/// The kinds of objects, in an order in which they can be created.
pub(super) const KINDS: [&str; 5] = ["table", "column", "index", "view", "trigger"];

impl<'m> SchemaRepair<'m> {
    pub(super) fn new(
        names: &'m SqliteNames,
        found: &'m BTreeMap<String, String>,
        recorded: Option<BTreeSet<i64>>,
    ) -> Self {
        let applied = object_script::applied(recorded, MIGRATIONS, found);
        Self { names, scripts: object_scripts(), found, applied }
    }

    /// The statements that repair the object; `None` if a pending migration creates it.
    pub(super) fn fix(&self, object: &str, is_there: bool) -> Option<String> {
        let (kind, name) = object.split_once(' ')?;
        let template = match (kind, is_there) {
            ("table", false) => self.create(object)?,
            ("table", true) => self.rebuild(name)?,
            ("column", _) => self.column(name, is_there)?,
            (kind, true) => sql!(
                "drop {kind} {object};\n{create}",
                kind = Template::of_schema(kind),
                object = Template::of_object(name),
                create = self.create(object)?
            ),
            (_, false) => self.create(object)?,
        };
        Some(self.names.render(template.as_str()))
    }

    fn script(&self, object: &str) -> Option<&ObjectScript> {
        self.scripts.get(object).filter(|script| self.applied.contains(&script.version))
    }

    fn create(&self, object: &str) -> Option<Template> {
        self.script(object).map(|script| Template::of_schema(script.text()))
    }

    fn column(&self, name: &str, is_there: bool) -> Option<Template> {
        let (table, column) = name.split_once('.')?;
        let object = format!("table {table}");
        if !self.found.contains_key(&object) {
            return self.create(&object);
        }
        let create_script = &self.script(&object)?.statements;
        let item =
            items(create_script.first()?).into_iter().find(|item| item.split(' ').next() == Some(column));
        let added =
            create_script.iter().find(|statement| statement.contains(&format!(" add column {column} ")));
        match (is_there, item, added) {
            (false, _, Some(statement)) => {
                Some(sql!("{statement};", statement = Template::of_schema(statement)))
            }
            // SQLite can add a `not null` column only with a default.
            (false, Some(item), None) if !item.contains(" not null") || item.contains(" default ") => {
                Some(sql!(
                    "alter table {table} add column {item};",
                    table = Template::of_object(table),
                    item = Template::of_schema(item)
                ))
            }
            _ => self.rebuild(table),
        }
    }

    /// Copies the rows to a new table, with the columns that it has. The indexes and triggers of the old table are dropped with it, and
    /// the next validation reports them as missing.
    fn rebuild(&self, table: &str) -> Option<Template> {
        let create = self.create(&format!("table {table}"))?;
        let columns: Vec<_> = EXPECTED
            .lines()
            .filter_map(|line| line.split('\t').next()?.strip_prefix("column ")?.split_once('.'))
            .filter(|(of, column)| {
                *of == table && self.found.contains_key(&format!("column {table}.{column}"))
            })
            .map(|(_, column)| column)
            .collect();
        Some(sql!(
            "pragma legacy_alter_table = on;\nalter table {table} rename to {before};\n{create}\n\
             insert or ignore into {table} ({columns}) select {columns} from {before};\n\
             drop table {before};",
            table = Template::of_object(table),
            before = Template::of_object(&format!("{table}_before")),
            create,
            columns = Template::of_schema(columns.join(", "))
        ))
    }
}

fn object_scripts() -> BTreeMap<String, ObjectScript> {
    let mut scripts = BTreeMap::<String, ObjectScript>::new();
    for &(version, _, template) in MIGRATIONS {
        for statement in statements(template) {
            let words: Vec<_> = statement.split_whitespace().take(4).collect();
            let object = match &words[..] {
                ["create", "unique", "index", name] => format!("index {}", object_name(name)),
                ["create", kind, name, ..] => format!("{kind} {}", object_name(name)),
                ["alter" | "insert", _, name, ..] => format!("table {}", object_name(name)),
                ["drop", kind, name, ..] => {
                    scripts.remove(&format!("{kind} {}", object_name(name)));
                    continue;
                }
                _ => String::new(),
            };
            scripts.entry(object).or_default().add(version, statement);
        }
    }
    scripts
}

/// The name in a placeholder: `ready` for `{ready}`.
fn object_name(word: &str) -> &str {
    word.trim_matches(['{', '}'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_expected_object_has_a_create_statement() {
        let scripts = object_scripts();
        assert!(!scripts.contains_key(""), "{:?}", scripts.get(""));
        for line in EXPECTED.lines() {
            let object = line.split('\t').next().unwrap();
            assert!(
                object.starts_with("column ") || scripts.contains_key(object),
                "no migration creates {object}"
            );
        }
    }
}
