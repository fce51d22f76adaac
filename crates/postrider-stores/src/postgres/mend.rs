//! What mends a difference between the tables and what this version needs.
//!
//! What the migrations make is made by their statements. Options, constraints and the shape of columns are told by the
//! difference itself. An object whose migration was not run yet is the migrations' affair.

use super::{Names, makers::Makers, schema::MIGRATIONS, validate::EXPECTED};
use crate::{
    maker::{self, Maker},
    script::items,
};
use std::collections::{BTreeMap, BTreeSet};

pub(super) struct Mender<'m> {
    names: &'m Names,
    makers: Makers,
    found: &'m BTreeMap<String, String>,
    /// The migrations that were run.
    applied: BTreeSet<i64>,
}

/// What can be made before what.
pub(super) const KINDS: [&str; 8] =
    ["sequence", "table", "column", "function", "constraint", "index", "trigger", "option"];

impl<'m> Mender<'m> {
    pub(super) fn new(
        names: &'m Names,
        found: &'m BTreeMap<String, String>,
        recorded: Option<BTreeSet<i64>>,
    ) -> Self {
        let applied = maker::applied(recorded, &MIGRATIONS, found);
        Self { names, makers: Makers::of(&MIGRATIONS), found, applied }
    }

    /// The statements that mend it; none where the migrations do.
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

    /// What makes it, if that was run already.
    fn maker(&self, object: &str) -> Option<&Maker> {
        self.makers.get(object).filter(|maker| self.applied.contains(&maker.version))
    }

    fn made(&self, object: &str) -> Option<String> {
        self.maker(object).map(Maker::text)
    }

    /// Whether a table is missing or something else has its name: then all that belongs to it comes with it.
    fn is_remade(&self, table: &str) -> bool {
        let object = format!("table {table}");
        let found = self.found.get(&object).map(|found| found.trim_end_matches(", not logged"));
        found != expected_of(&object)
    }

    fn table(&self, name: &str, found: Option<&str>) -> Option<String> {
        let made = self.made(&format!("table {name}"))?;
        if name == "outbox" {
            // What inserts into it goes with it.
            let trigger = self.made("trigger outbox_insert")?;
            return Some(format!("drop view if exists {{{name}}} cascade;\n{made}\n{trigger}"));
        }
        match found {
            Some(found) if found.ends_with(", not logged") => {
                Some(format!("alter table {{{name}}} set logged;"))
            }
            // Its indexes and constraints go with it, and are missing then.
            Some(_) => Some(format!(
                "create schema if not exists \"{{#schema}}_before\";\nalter table {{{name}}} set schema \"{{#schema}}_before\";\n{made}"
            )),
            None => Some(made),
        }
    }

    fn remade(&self, table: &str) -> Option<String> {
        self.table(table, self.found.get(&format!("table {table}")).map(String::as_str))
    }

    fn column(&self, name: &str, expected: &str, found: Option<&str>) -> Option<String> {
        let (table, column) = name.split_once('.')?;
        if self.is_remade(table) || table == "outbox" {
            return self.remade(table);
        }
        // A partition has the columns of what it is part of.
        let table = if table == "archive_rest" { "archive" } else { table };
        let made = &self.maker(&format!("table {table}"))?.statements;
        let item = items(made.first()?).into_iter().find(|item| item.split(' ').next() == Some(column))?;
        if found.is_none() {
            return Some(format!("alter table {{{table}}} add column {item};"));
        }
        if expected.contains(" generated as ") {
            // What hangs on it goes with it, and is missing then.
            return Some(format!("alter table {{{table}}} drop column {column}, add column {item};"));
        }
        let (shape, found) = (Shape::of(expected), Shape::of(found?));
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
        let Some(made) = self.made(&format!("index {name}")) else {
            return self.constraint(name, expected_of(&format!("constraint {name}"))?);
        };
        // Writers need not wait for it, unless the table has parts.
        let made = match made.contains(" on {archive} ") {
            true => made,
            false if found.is_none() => made.replacen("index ", "index concurrently ", 1),
            false => made,
        };
        Some(if found.is_some() { format!("drop index {{{name}}};\n{made}") } else { made })
    }

    fn constraint(&self, name: &str, expected: &str) -> Option<String> {
        let (table, definition) = expected.strip_prefix("on ")?.split_once(' ')?;
        if self.is_remade(table) {
            return self.remade(table);
        }
        self.maker(&format!("table {table}"))?;
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
        if self.is_remade(table) {
            return self.remade(table);
        }
        self.maker(&format!("table {table}"))?;
        Some(format!("alter table {{{table}}} set ({option} = {expected});"))
    }

    /// A sequence that is made anew goes on behind what it has given.
    fn sequence(&self, name: &str, expected: &str, found: Option<&str>) -> Option<String> {
        let Some(made) = self.made(&format!("sequence {name}")) else {
            let table = name.strip_suffix("_id_seq")?;
            return if self.is_remade(table) {
                self.remade(table)
            } else {
                Some(format!("alter sequence {{{name}}} as {expected};"))
            };
        };
        if found.is_some() {
            return Some(format!("alter sequence {{{name}}} as {expected};"));
        }
        let given = match name {
            "turn" => "select max(seq) from {lane}",
            _ => {
                "select max(id) from (select max(id) from {ready} union all select max(id) from {later} \
                 union all select max(id) from {dead}) given(id)"
            }
        };
        Some(format!("{made}\nselect setval('{{{name}}}', coalesce(({given}), 0) + 1);"))
    }

    fn function(&self, name: &str) -> Option<String> {
        let made = self.made(&format!("function {name}"))?;
        Some(made.replace("create function ", "create or replace function "))
    }

    fn trigger(&self, name: &str) -> Option<String> {
        if name == "outbox_insert" && self.is_remade("outbox") {
            return self.remade("outbox");
        }
        let made = self.made(&format!("trigger {name}"))?;
        Some(made.replacen("create trigger ", "create or replace trigger ", 1))
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
struct Shape<'s> {
    kind: &'s str,
    is_not_null: bool,
    default: Option<&'s str>,
}

impl<'s> Shape<'s> {
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
