//! The statements of the migrations that create each object, so that a missing one can be created again.
//!
//! The migrations are read in their order: an object that a later statement renames, alters or drops is followed.

use crate::{
    object_script::{MigrationScript, ObjectScript},
    script::{items, statements},
};
use std::collections::BTreeMap;

/// By `table ready`, `function stage`, …
#[derive(Debug, Default)]
pub(super) struct ObjectScripts(BTreeMap<String, ObjectScript>);

impl ObjectScripts {
    pub(super) fn of(migrations: &[MigrationScript]) -> Self {
        let mut scripts = Self::default();
        for (version, _, template) in migrations {
            for statement in statements(template) {
                scripts.read(*version, statement);
            }
        }
        scripts
    }

    pub(super) fn get(&self, object: &str) -> Option<&ObjectScript> {
        self.0.get(object)
    }

    fn read(&mut self, version: i64, statement: &str) {
        let words: Vec<_> = statement.split_whitespace().take(8).collect();
        let first = |index: usize| words.get(index).map(|word| name(word)).unwrap_or_default();
        match &words[..] {
            ["create", kind @ ("table" | "sequence" | "index" | "function" | "trigger"), ..] => {
                self.add(version, format!("{kind} {}", first(2)), statement);
            }
            ["create", "view", ..] => self.add(version, format!("table {}", first(2)), statement),
            ["create", "unique", "index", ..] => {
                self.add(version, format!("index {}", first(3)), statement);
            }
            ["comment", "on", "view", ..] => self.add(version, format!("table {}", first(3)), statement),
            ["insert", "into", ..] => self.add(version, format!("table {}", first(2)), statement),
            ["alter", "table", _, "enable", "always", "trigger", ..] => {
                self.add(version, format!("trigger {}", first(6)), statement);
            }
            ["drop", "function", ..] => drop(self.0.remove(&format!("function {}", first(2)))),
            ["alter", "function", ..] => match statement.split_once(" rename to ") {
                Some((_, new)) => self.rename(first(2), name(new)),
                None => self.add(version, format!("function {}", first(2)), statement),
            },
            ["revoke", "all", "on", "function", ..] => {
                for function in functions(statement) {
                    let revoke = format!("revoke all on function {function} from public");
                    self.add(version, format!("function {}", name(&function)), &revoke);
                }
            }
            _ => self.add(version, String::new(), statement),
        }
    }

    fn add(&mut self, version: i64, object: String, statement: &str) {
        self.0.entry(object).or_default().add(version, statement);
    }

    fn rename(&mut self, old: &str, new: &str) {
        if let Some(mut script) = self.0.remove(&format!("function {old}")) {
            let (old, after) = (format!("{{{old}}}"), format!("{{{new}}}"));
            script
                .statements
                .iter_mut()
                .for_each(|statement| *statement = statement.replacen(&old, &after, 1));
            self.0.insert(format!("function {new}"), script);
        }
    }
}

/// `ready` of `{ready}`, `{#ready}`, `{ready}(text, …` or `ready`.
fn name(word: &str) -> &str {
    let bare = word.trim_start_matches(['{', '#']);
    bare.split(['}', '(', ';']).next().unwrap_or(bare)
}

/// The functions of a `revoke`, with their arguments if they are given.
fn functions(statement: &str) -> Vec<String> {
    let list = statement.trim_start_matches("revoke all on function").trim_end_matches("from public");
    items(&format!("({list})"))
}

#[cfg(test)]
mod tests {
    use super::{
        super::{schema::MIGRATIONS, validate::EXPECTED},
        *,
    };

    #[test]
    fn every_expected_object_has_a_script() {
        let scripts = ObjectScripts::of(&MIGRATIONS);
        assert!(scripts.get("").is_none(), "{:?}", scripts.get(""));
        let constraints: Vec<_> =
            EXPECTED.lines().filter_map(|line| line.strip_prefix("constraint ")?.split_once('\t')).collect();
        for line in EXPECTED.lines() {
            let object = line.split(['\t', '(']).next().unwrap();
            let (kind, name) = object.split_once(' ').unwrap();
            let is_implied = match kind {
                "column" | "option" | "constraint" => continue,
                "index" => constraints.iter().any(|(constraint, _)| *constraint == name),
                "sequence" => name.ends_with("_id_seq"),
                _ => false,
            };
            assert!(is_implied || scripts.get(object).is_some(), "no statement creates {object}");
        }
    }

    #[test]
    fn statements_of_renamed_altered_and_revoked_function_are_collected() {
        let first = "create function {stage}(a text) returns void as 'select 1';\n\
            create function {old}() returns void as 'select 1';\ncreate table {head} (n int);\n\
            insert into {head} values (0);";
        let second = "alter function {stage}(text) rename to {#stage_many};\n\
            alter function {stage_many} security definer;\ndrop function {old}();\n\
            revoke all on function {stage_many}, {stage}(text, int) from public;";
        let scripts = ObjectScripts::of(&[(1, "first", first), (2, "second", second)]);
        let script = scripts.get("function stage_many").unwrap();
        assert_eq!(
            script.statements,
            [
                "create function {stage_many}(a text) returns void as 'select 1'",
                "alter function {stage_many} security definer",
                "revoke all on function {stage_many} from public",
            ]
        );
        assert_eq!(script.version, 2);
        assert!(scripts.get("function old").is_none());
        assert_eq!(scripts.get("table head").unwrap().statements.len(), 2);
    }

    #[test]
    fn overloads_share_one_script() {
        let scripts = ObjectScripts::of(&MIGRATIONS);
        assert_eq!(scripts.get("function stage").unwrap().statements.len(), 6);
        assert_eq!(scripts.get("table ledger_head").unwrap().statements.len(), 2);
    }
}
