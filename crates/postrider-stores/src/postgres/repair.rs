//! The SQL that fixes a difference between the tables and the schema of this version.
//!
//! An object that the migrations create is created by their statements. Options, constraints and columns are altered as the
//! difference says. An object whose migration is pending is left to the migrations.

use super::{PostgresNames, object_scripts::ObjectScripts, schema::MIGRATIONS, validate::EXPECTED};
use crate::{
    object_script::{self, ObjectScript},
    script::items,
    template::Template,
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
        Some(self.names.render(template.as_str()))
    }

    /// The script of an object, if its migration was applied.
    fn script(&self, object: &str) -> Option<&ObjectScript> {
        self.scripts.get(object).filter(|script| self.applied.contains(&script.version))
    }

    fn create(&self, object: &str) -> Option<Template> {
        self.script(object).map(|script| Template::of_schema(script.text()))
    }

    /// Whether a table is missing or another kind of object has its name: then its script creates everything that belongs to it.
    fn is_recreated(&self, table: &str) -> bool {
        let object = format!("table {table}");
        let found = self.found.get(&object).map(|found| found.trim_end_matches(", not logged"));
        found != expected_of(&object)
    }

    fn table(&self, name: &str, found: Option<&str>) -> Option<Template> {
        let create = self.create(&format!("table {name}"))?;
        let table = Template::of_object(name);
        if name == "outbox" {
            // The view's trigger is dropped with it.
            let trigger = self.create("trigger outbox_insert")?;
            return Some(sql!(
                "drop view if exists {table} cascade;\n{create}\n{trigger}",
                table,
                create,
                trigger
            ));
        }
        match found {
            Some(found) if found.ends_with(", not logged") => {
                Some(sql!("alter table {table} set logged;", table))
            }
            // Its indexes and constraints move with it, and are reported as missing then.
            Some(_) => Some(sql!(
                "create schema if not exists \"{#schema}_before\";\nalter table {table} set schema \"{#schema}_before\";\n{create}",
                table,
                create
            )),
            None => Some(create),
        }
    }

    fn recreate(&self, table: &str) -> Option<Template> {
        self.table(table, self.found.get(&format!("table {table}")).map(String::as_str))
    }

    fn column(&self, name: &str, expected: &str, found: Option<&str>) -> Option<Template> {
        let (table, column) = name.split_once('.')?;
        if self.is_recreated(table) || table == "outbox" {
            return self.recreate(table);
        }
        // A partition has the columns of its parent.
        let table = if table == "archive_rest" { "archive" } else { table };
        let script = &self.script(&format!("table {table}"))?.statements;
        let item = items(script.first()?).into_iter().find(|item| item.split(' ').next() == Some(column))?;
        let default = item.split_once(" default ").map(|(_, default)| Template::of_schema(default));
        let (table, column) = (Template::of_object(table), Template::of_schema(column));
        let item = Template::of_schema(item);
        if found.is_none() {
            return Some(sql!("alter table {table} add column {item};", table, item));
        }
        if expected.contains(" generated as ") {
            // Objects that depend on the column are dropped with it, and are reported as missing then.
            return Some(sql!(
                "alter table {table} drop column {column}, add column {item};",
                table,
                column,
                item
            ));
        }
        let (shape, found) = (ColumnShape::of(expected), ColumnShape::of(found?));
        let mut changes = Vec::new();
        if shape.kind != found.kind {
            let kind = Template::of_schema(shape.kind.replace(" collate C", " collate \"C\""));
            changes.push(sql!("alter column {column} type {kind}", column, kind));
        }
        if shape.is_not_null != found.is_not_null {
            let verb = if shape.is_not_null { sql!("set") } else { sql!("drop") };
            changes.push(sql!("alter column {column} {verb} not null", column, verb));
        }
        if shape.default != found.default {
            changes.push(match default {
                Some(default) => sql!("alter column {column} set default {default}", column, default),
                None => sql!("alter column {column} drop default", column),
            });
        }
        Some(sql!("alter table {table} {changes};", table, changes = Template::join(changes, ", ")))
    }

    fn index(&self, name: &str, found: Option<&str>) -> Option<Template> {
        let index = Template::of_object(name);
        if let Some(found) = found.filter(|found| found.ends_with(", invalid"))
            && !found.contains(" on archive ")
        {
            return Some(sql!("reindex index concurrently {index};", index));
        }
        let Some(script) = self.script(&format!("index {name}")).map(ObjectScript::text) else {
            return self.constraint(name, expected_of(&format!("constraint {name}"))?);
        };
        // Concurrently, so that writers need not wait; PostgreSQL cannot do that for a partitioned table.
        let create = Template::of_schema(match script.contains(" on {archive} ") {
            true => script,
            false if found.is_none() => script.replacen("index ", "index concurrently ", 1),
            false => script,
        });
        Some(if found.is_some() { sql!("drop index {index};\n{create}", index, create) } else { create })
    }

    fn constraint(&self, name: &str, expected: &str) -> Option<Template> {
        let (table, definition) = expected.strip_prefix("on ")?.split_once(' ')?;
        if self.is_recreated(table) {
            return self.recreate(table);
        }
        self.script(&format!("table {table}"))?;
        let is_constraint = self.found.contains_key(&format!("constraint {name}"));
        let is_index = !is_constraint && self.found.contains_key(&format!("index {name}"));
        let index = Template::of_object(name);
        let constraint = Template::of_object(&format!("#{name}"));
        let drop_index = if is_index { sql!("drop index {index};\n", index) } else { sql!("") };
        let old = if is_constraint { sql!("drop constraint {constraint}, ", constraint) } else { sql!("") };
        Some(sql!(
            "{drop_index}alter table {table} {old}add constraint {constraint} {definition};",
            drop_index,
            table = Template::of_object(table),
            old,
            constraint,
            definition = Template::of_schema(definition)
        ))
    }

    fn option(&self, name: &str, expected: &str) -> Option<Template> {
        let (table, option) = name.split_once('.')?;
        if self.is_recreated(table) {
            return self.recreate(table);
        }
        self.script(&format!("table {table}"))?;
        let (option, expected) = (Template::of_schema(option), Template::of_schema(expected));
        let table = Template::of_object(table);
        Some(sql!("alter table {table} set ({option} = {expected});", table, option, expected))
    }

    /// A new sequence continues after the highest value in use.
    fn sequence(&self, name: &str, expected: &str, found: Option<&str>) -> Option<Template> {
        let sequence = Template::of_object(name);
        let alter =
            sql!("alter sequence {sequence} as {kind};", sequence, kind = Template::of_schema(expected));
        let Some(create) = self.create(&format!("sequence {name}")) else {
            let table = name.strip_suffix("_id_seq")?;
            return if self.is_recreated(table) { self.recreate(table) } else { Some(alter) };
        };
        if found.is_some() {
            return Some(alter);
        }
        let used = match name {
            "turn" => sql!("select max(turn) from {lane}"),
            "queue_number" => sql!("select max(id) from {queue}"),
            _ => sql!(
                "select max(id) from (select max(id) from {ready} union all select max(id) from {scheduled} \
                 union all select max(id) from {dead}) used(id)"
            ),
        };
        Some(sql!(
            "{create}\nselect setval('{sequence}', coalesce(({used}), 0) + 1);",
            create,
            sequence,
            used
        ))
    }

    fn function(&self, name: &str) -> Option<Template> {
        let script = self.script(&format!("function {name}"))?.text();
        Some(Template::of_schema(script.replace("create function ", "create or replace function ")))
    }

    fn trigger(&self, name: &str) -> Option<Template> {
        if name == "outbox_insert" && self.is_recreated("outbox") {
            return self.recreate("outbox");
        }
        let script = self.script(&format!("trigger {name}"))?.text();
        Some(Template::of_schema(script.replacen("create trigger ", "create or replace trigger ", 1)))
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
