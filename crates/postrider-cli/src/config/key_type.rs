//! What a key of the file is: one description, of which the reader of the file, its error messages, `config show`, `config schema` and
//! the reference page are made.

use super::{
    key::{Direction, keys},
    kind::{self, Kind},
    section::Section,
    table::Table,
    value::Mistake,
};

/// The type of a key's value.
#[derive(Debug, Clone, Copy)]
pub(super) enum ValueType {
    String,
    Choice(&'static [&'static str]),
    Flag,
    /// A whole number of at least 1.
    Number,
    Decimal,
    Duration,
    /// Such as `"100/s"`.
    Rate,
    Strings,
    Numbers,
    Durations,
    /// An address to listen on, or `off`.
    Listen,
    /// In the file if it holds no password, otherwise a secret.
    Url,
    /// As `Url`, or the path of a SQLite file.
    Database,
    /// Never in the file: an environment variable or another file holds it.
    Secret,
    /// The name of a table of this section. If the key is optional, its default is the only table.
    Reference(&'static str),
    Table(TableType),
    /// A list of tables.
    Tables(TableType),
    /// Tables by name.
    NamedTables(TableType),
}

/// The keys of a table.
#[derive(Debug, Clone, Copy)]
pub(super) enum TableType {
    /// `check` reports problems that concern more than one key.
    Section { keys: fn() -> Vec<Key>, check: fn(&Table<'_>, &mut Section) },
    /// The value of its key `kind` determines the other keys.
    Endpoint(Direction),
}

/// The flag and the environment variable that override a key.
#[derive(Debug, Clone, Copy)]
pub(super) struct Override {
    pub(super) flag: &'static str,
    pub(super) variable: &'static str,
}

/// Checks the text of a value at this path, or each text of a list.
pub(super) type Rule = fn(&str, &str) -> Result<(), Mistake>;

/// A key of the file.
#[derive(Debug, Clone, Copy)]
pub(super) struct Key {
    pub(super) name: &'static str,
    /// The value to write, in TOML; or how to write a section of the file.
    pub(super) example: &'static str,
    pub(super) value_type: ValueType,
    pub(super) is_required: bool,
    pub(super) about: &'static str,
    /// In TOML.
    pub(super) default: Option<&'static str>,
    pub(super) rule: Option<Rule>,
    /// The name that it had once. A file with that name is rejected with the new one.
    pub(super) old_name: Option<&'static str>,
    /// Another key of the table that it conflicts with, and the reason.
    pub(super) conflict: Option<(&'static str, &'static str)>,
    pub(super) overridden_by: Option<Override>,
    /// The kind of database that it is for, if not for all.
    pub(super) only_for: Option<&'static str>,
}

impl Key {
    pub(super) const fn new(name: &'static str, example: &'static str, value_type: ValueType) -> Self {
        Self {
            name,
            example,
            value_type,
            is_required: false,
            about: "",
            default: None,
            rule: None,
            old_name: None,
            conflict: None,
            overridden_by: None,
            only_for: None,
        }
    }

    pub(super) const fn string(name: &'static str, example: &'static str) -> Self {
        Self::new(name, example, ValueType::String)
    }

    pub(super) const fn flag(name: &'static str) -> Self {
        Self::new(name, "true", ValueType::Flag).default("false")
    }

    pub(super) const fn secret(name: &'static str) -> Self {
        Self::new(name, "", ValueType::Secret)
    }

    pub(super) const fn url(example: &'static str) -> Self {
        Self::new("url", example, ValueType::Url)
    }

    pub(super) const fn required(self) -> Self {
        Self { is_required: true, ..self }
    }

    /// Describes the key in one line.
    pub(super) const fn about(self, about: &'static str) -> Self {
        Self { about, ..self }
    }

    pub(super) const fn default(self, toml: &'static str) -> Self {
        Self { default: Some(toml), ..self }
    }

    pub(super) const fn rule(self, rule: Rule) -> Self {
        Self { rule: Some(rule), ..self }
    }

    pub(super) const fn renamed_from(self, old_name: &'static str) -> Self {
        Self { old_name: Some(old_name), ..self }
    }

    pub(super) const fn conflicts_with(self, other: &'static str, reason: &'static str) -> Self {
        Self { conflict: Some((other, reason)), ..self }
    }

    pub(super) const fn overridden_by(self, flag: &'static str, variable: &'static str) -> Self {
        Self { overridden_by: Some(Override { flag, variable }), ..self }
    }

    pub(super) const fn only_for(self, databases: &'static str) -> Self {
        Self { only_for: Some(databases), ..self }
    }

    /// The description with the rules that the key has as data.
    pub(super) fn description(&self) -> String {
        let only_for = self.only_for.map(|databases| format!("; for {databases} only"));
        let conflict =
            self.conflict.map(|(other, reason)| format!("; not together with `{other}`: {reason}"));
        let overridden =
            self.overridden_by.map(|by| format!(". `{}` and `{}` override it", by.flag, by.variable));
        let rules = [only_for, conflict, overridden].into_iter().flatten();
        rules.fold(self.about.to_owned(), |text, rule| text + &rule)
    }

    /// The names under which it may be set.
    pub(super) fn names(&self) -> Vec<String> {
        let [env, file] = references(self.name);
        match self.value_type {
            ValueType::Url | ValueType::Database => vec![self.name.to_owned(), env, file],
            ValueType::Secret => vec![env, file],
            _ => vec![self.name.to_owned()],
        }
    }

    pub(super) fn is_secret(&self) -> bool {
        matches!(self.value_type, ValueType::Url | ValueType::Database | ValueType::Secret)
    }

    /// The table or list as it is written in the file.
    pub(super) fn written(&self) -> String {
        match self.value_type {
            ValueType::NamedTables(_) => self.example.to_owned(),
            _ if self.example.starts_with("[[") => self.example.to_owned(),
            _ => format!("{} = {}", self.name, self.example),
        }
    }
}

/// The keys that refer to a secret.
pub(super) fn references(key: &str) -> [String; 2] {
    ["env", "file"].map(|suffix| format!("{key}_{suffix}"))
}

/// The words of these choices.
pub(super) const fn words<T, const N: usize>(choices: &[(&'static str, T); N]) -> [&'static str; N] {
    let mut words = [""; N];
    let mut index = 0;
    while index < N {
        words[index] = choices[index].0;
        index += 1;
    }
    words
}

/// These keys, and all keys of the tables below them.
pub(super) fn with_nested(keys: Vec<Key>) -> Vec<Key> {
    let nested = |key: &Key| match key.value_type {
        ValueType::Table(table) | ValueType::Tables(table) | ValueType::NamedTables(table) => {
            table.variants()
        }
        _ => Vec::new(),
    };
    let below: Vec<_> = keys.iter().flat_map(nested).flat_map(|(_, keys)| with_nested(keys)).collect();
    [keys, below].concat()
}

impl TableType {
    /// The lists of keys that such a table may have: one for each kind, or a single one without a kind.
    pub(super) fn variants(self) -> Vec<(Option<Kind>, Vec<Key>)> {
        match self {
            Self::Section { keys, .. } => vec![(None, keys())],
            Self::Endpoint(direction) => {
                let kinds = kind::KINDS.into_iter().filter(|(name, _)| kind::words(direction).contains(name));
                kinds.map(|(_, kind)| (Some(kind), keys(kind, direction))).collect()
            }
        }
    }
}
