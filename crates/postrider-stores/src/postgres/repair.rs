//! The SQL that fixes a difference between the tables and the schema of this version.
//!
//! An object that the migrations create is created by their statements. Options, constraints and columns are altered as the
//! difference says. An object whose migration is pending is left to the migrations.

use super::{PostgresNames, object_scripts::ObjectScripts, schema::MIGRATIONS, validate::EXPECTED};
use crate::{
    object_script::{self, ObjectScript},
    script::items,
};
use std::collections::{BTreeMap, BTreeSet};

pub(super) struct SchemaRepair<'m> {
    names: &'m PostgresNames,
    scripts: ObjectScripts,
    found: &'m BTreeMap<String, String>,
    /// The numbers of the applied migrations.
    applied: BTreeSet<i64>,
}

/// The kinds of objects, in the order of creation.
pub(super) const KINDS: [&str; 8] =
    ["sequence", "table", "column", "function", "constraint", "index", "trigger", "option"];

impl<'m> SchemaRepair<'m> {
    pub(super) fn new(
        names: &'m PostgresNames,
        found: &'m BTreeMap<String, String>,
        recorded: Option<BTreeSet<i64>>,
    ) -> Self {
        let applied = object_script::applied(recorded, &MIGRATIONS, found);
        Self { names, scripts: ObjectScripts::of(&MIGRATIONS), found, applied }
    }

    /// The statements that fix the object; none when a pending migration does.
    pub(super) fn fix(&self, object: &str, expected: &str, found: Option<&str>) -> Option<String> {
        let (kind, name) = object.split_once(' ')?;
        let template = match kind {
            "table" => self.table(name, found)?,
            "column" => self.column(name, expected, found)?,
            "index" => self.index(name, found)?,
            "constraint" => self.constraint(name, expected)?,
            "option" => self.option(name, expected)?,
            "sequence" => self.sequence(name, expected, found)?,
            "function" => self.function(name.split('(').next()?)?,
            "trigger" => self.trigger(name)?,
            _ => return None,
        };
        Some(self.names.render(&template))
    }

    /// The script of an object, if its migration was applied.
    fn script(&self, object: &str) -> Option<&ObjectScript> {
        self.scripts.get(object).filter(|script| self.applied.contains(&script.version))
    }

    fn script_text(&self, object: &str) -> Option<String> {
        self.script(object).map(ObjectScript::text)
    }

    /// Whether a table is missing or another kind of object has its name: then its script creates everything that belongs to it.
    fn is_recreated(&self, table: &str) -> bool {
        let object = format!("table {table}");
        let found = self.found.get(&object).map(|found| found.trim_end_matches(", not logged"));
        found != expected_of(&object)
    }

    fn table(&self, name: &str, found: Option<&str>) -> Option<String> {
        let script = self.script_text(&format!("table {name}"))?;
        if name == "outbox" {
            // The view's trigger is dropped with it.
            let trigger = self.script_text("trigger outbox_insert")?;
            return Some(format!("drop view if exists {{{name}}} cascade;\n{script}\n{trigger}"));
        }
        match found {
            Some(found) if found.ends_with(", not logged") => {
                Some(format!("alter table {{{name}}} set logged;"))
            }
            // Its indexes and constraints move with it, and are reported as missing then.
            Some(_) => Some(format!(
                "create schema if not exists \"{{#schema}}_before\";\nalter table {{{name}}} set schema \"{{#schema}}_before\";\n{script}"
            )),
            None => Some(script),
        }
    }

    fn recreate(&self, table: &str) -> Option<String> {
        self.table(table, self.found.get(&format!("table {table}")).map(String::as_str))
    }

    fn column(&self, name: &str, expected: &str, found: Option<&str>) -> Option<String> {
        let (table, column) = name.split_once('.')?;
        if self.is_recreated(table) || table == "outbox" {
            return self.recreate(table);
        }
        // A partition has the columns of its parent.
        let table = if table == "archive_rest" { "archive" } else { table };
        let script = &self.script(&format!("table {table}"))?.statements;
        let item = items(script.first()?).into_iter().find(|item| item.split(' ').next() == Some(column))?;
        if found.is_none() {
            return Some(format!("alter table {{{table}}} add column {item};"));
        }
        if expected.contains(" generated as ") {
            // Objects that depend on the column are dropped with it, and are reported as missing then.
            return Some(format!("alter table {{{table}}} drop column {column}, add column {item};"));
        }
        let (shape, found) = (ColumnShape::of(expected), ColumnShape::of(found?));
        let mut changes = Vec::new();
        if shape.kind != found.kind {
            changes.push(format!(
                "alter column {column} type {}",
                shape.kind.replace(" collate C", " collate \"C\"")
            ));
        }
        if shape.is_not_null != found.is_not_null {
            let verb = if shape.is_not_null { "set" } else { "drop" };
            changes.push(format!("alter column {column} {verb} not null"));
        }
        if shape.default != found.default {
            changes.push(match item.split_once(" default ") {
                Some((_, default)) => format!("alter column {column} set default {default}"),
                None => format!("alter column {column} drop default"),
            });
        }
        Some(format!("alter table {{{table}}} {};", changes.join(", ")))
    }

    fn index(&self, name: &str, found: Option<&str>) -> Option<String> {
        if let Some(found) = found.filter(|found| found.ends_with(", invalid"))
            && !found.contains(" on archive ")
        {
            return Some(format!("reindex index concurrently {{{name}}};"));
        }
        let Some(script) = self.script_text(&format!("index {name}")) else {
            return self.constraint(name, expected_of(&format!("constraint {name}"))?);
        };
        // Concurrently, so that writers need not wait; PostgreSQL cannot do that for a partitioned table.
        let script = match script.contains(" on {archive} ") {
            true => script,
            false if found.is_none() => script.replacen("index ", "index concurrently ", 1),
            false => script,
        };
        Some(if found.is_some() { format!("drop index {{{name}}};\n{script}") } else { script })
    }

    fn constraint(&self, name: &str, expected: &str) -> Option<String> {
        let (table, definition) = expected.strip_prefix("on ")?.split_once(' ')?;
        if self.is_recreated(table) {
            return self.recreate(table);
        }
        self.script(&format!("table {table}"))?;
        let mut statements = String::new();
        let is_constraint = self.found.contains_key(&format!("constraint {name}"));
        if !is_constraint && self.found.contains_key(&format!("index {name}")) {
            statements.push_str(&format!("drop index {{{name}}};\n"));
        }
        let old = if is_constraint { format!("drop constraint {{#{name}}}, ") } else { String::new() };
        statements
            .push_str(&format!("alter table {{{table}}} {old}add constraint {{#{name}}} {definition};"));
        Some(statements)
    }

    fn option(&self, name: &str, expected: &str) -> Option<String> {
        let (table, option) = name.split_once('.')?;
        if self.is_recreated(table) {
            return self.recreate(table);
        }
        self.script(&format!("table {table}"))?;
        Some(format!("alter table {{{table}}} set ({option} = {expected});"))
    }

    /// A new sequence continues after the highest value in use.
    fn sequence(&self, name: &str, expected: &str, found: Option<&str>) -> Option<String> {
        let Some(script) = self.script_text(&format!("sequence {name}")) else {
            let table = name.strip_suffix("_id_seq")?;
            return if self.is_recreated(table) {
                self.recreate(table)
            } else {
                Some(format!("alter sequence {{{name}}} as {expected};"))
            };
        };
        if found.is_some() {
            return Some(format!("alter sequence {{{name}}} as {expected};"));
        }
        let used = match name {
            "turn" => "select max(turn) from {lane}",
            "queue_number" => "select max(id) from {queue}",
            _ => {
                "select max(id) from (select max(id) from {ready} union all select max(id) from {scheduled} \
                 union all select max(id) from {dead}) used(id)"
            }
        };
        Some(format!("{script}\nselect setval('{{{name}}}', coalesce(({used}), 0) + 1);"))
    }

    fn function(&self, name: &str) -> Option<String> {
        let script = self.script_text(&format!("function {name}"))?;
        Some(script.replace("create function ", "create or replace function "))
    }

    fn trigger(&self, name: &str) -> Option<String> {
        if name == "outbox_insert" && self.is_recreated("outbox") {
            return self.recreate("outbox");
        }
        let script = self.script_text(&format!("trigger {name}"))?;
        Some(script.replacen("create trigger ", "create or replace trigger ", 1))
    }
}

fn expected_of(object: &str) -> Option<&'static str> {
    EXPECTED
        .lines()
        .filter_map(|line| line.split_once('\t'))
        .find(|(each, _)| *each == object)
        .map(|(_, expected)| expected)
}

/// A column as the catalog describes it.
#[derive(Debug, PartialEq, Eq)]
struct ColumnShape<'s> {
    kind: &'s str,
    is_not_null: bool,
    default: Option<&'s str>,
}

impl<'s> ColumnShape<'s> {
    fn of(text: &'s str) -> Self {
        let (text, default) = match text.split_once(" default ") {
            Some((text, default)) => (text, Some(default)),
            None => (text, None),
        };
        let (text, _) = text.split_once(" generated ").unwrap_or((text, ""));
        let (kind, is_not_null) = match text.strip_suffix(" not null") {
            Some(kind) => (kind, true),
            None => (text, false),
        };
        Self { kind, is_not_null, default }
    }
}
