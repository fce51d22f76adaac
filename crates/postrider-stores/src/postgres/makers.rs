//! Which statements of the migrations make which object, so that one that is missing can be made again.
//!
//! The migrations are read as they stand, in their order: what is renamed, altered or dropped later is followed.

use crate::{
    maker::{Maker, Script},
    script::{items, statements},
};
use std::collections::BTreeMap;

/// By `table ready`, `function stage`, …
#[derive(Debug, Default)]
pub(super) struct Makers(BTreeMap<String, Maker>);

impl Makers {
    pub(super) fn of(migrations: &[Script]) -> Self {
        let mut makers = Self::default();
        for (version, _, template) in migrations {
            for statement in statements(template) {
                makers.read(*version, statement);
            }
        }
        makers
    }

    pub(super) fn get(&self, object: &str) -> Option<&Maker> {
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
        if let Some(mut maker) = self.0.remove(&format!("function {old}")) {
            let (old, after) = (format!("{{{old}}}"), format!("{{{new}}}"));
            maker
                .statements
                .iter_mut()
                .for_each(|statement| *statement = statement.replacen(&old, &after, 1));
            self.0.insert(format!("function {new}"), maker);
        }
    }
}

/// `ready` of `{ready}`, `{#ready}`, `{ready}(text, …` or `ready`.
fn name(word: &str) -> &str {
    let bare = word.trim_start_matches(['{', '#']);
    bare.split(['}', '(', ';']).next().unwrap_or(bare)
}

/// The functions of a `revoke`, with their arguments where they have some.
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
    fn everything_that_is_expected_has_a_maker() {
        let makers = Makers::of(&MIGRATIONS);
        assert!(makers.get("").is_none(), "{:?}", makers.get(""));
        let constraints: Vec<_> =
            EXPECTED.lines().filter_map(|line| line.strip_prefix("constraint ")?.split_once('\t')).collect();
        for line in EXPECTED.lines() {
            let object = line.split(['\t', '(']).next().unwrap();
            let (kind, name) = object.split_once(' ').unwrap();
            let is_made = match kind {
                "column" | "option" | "constraint" => continue,
                "index" => constraints.iter().any(|(constraint, _)| *constraint == name),
                "sequence" => name.ends_with("_id_seq"),
                _ => false,
            };
            assert!(is_made || makers.get(object).is_some(), "nobody makes {object}");
        }
    }

    #[test]
    fn what_was_renamed_altered_and_guarded_is_made_so() {
        let makers = Makers::of(&MIGRATIONS);
        let made = &makers.get("function stage_many").unwrap().statements;
        assert!(made[0].starts_with("create function {stage_many}("), "{}", made[0]);
        assert_eq!(
            made[1..],
            [
                "alter function {stage_many} security definer set search_path = pg_catalog, pg_temp",
                "revoke all on function {stage_many} from public"
            ]
        );
        assert_eq!(makers.get("function stage").unwrap().statements.len(), 6);
        assert_eq!(makers.get("table ledger_head").unwrap().statements.len(), 2);
    }
}
