//! `docs/reference/configuration.md`, made of the data of the keys. A test compares the page with it, and `UPDATE_EXPECTED=1` rewrites
//! the page.

use super::{
    key::{MUTUALLY_EXCLUSIVE, REQUIRED_TOGETHER},
    key_type::{Key, TableType, ValueType},
    kind, root,
};
use std::{env, fmt::Write, fs};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/configuration.md");
const HEAD: &str = include_str!("reference.md");

/// The page: what is the same for all keys, and then a table for each section.
fn page() -> String {
    let mut page = HEAD.replace("{overrides}", &overrides());
    let _ = writeln!(page, "\n## The file\n\n{}", table(&root::keys(), ""));
    let _ = writeln!(page, "At least one of {} is required.", words(&root::ANY_OF, "and"));
    add_sections(&mut page, &root::keys(), "", 2);
    page
}

/// A row for each key that a flag or an environment variable overrides.
fn overrides() -> String {
    let mut rows = String::new();
    for section in root::keys() {
        let ValueType::Table(TableType::Section { keys, .. }) = section.value_type else { continue };
        for (key, by) in keys().iter().filter_map(|key| Some((key.name, key.overridden_by?))) {
            let _ = write!(rows, "\n| `{}.{key}` | `{}` | `{}` |", section.name, by.flag, by.variable);
        }
    }
    rows
}

/// A part of the page for each table below these keys, under headings of this level.
fn add_sections(page: &mut String, keys: &[Key], path: &str, level: usize) {
    for key in keys {
        let (table_type, written) = match key.value_type {
            ValueType::Table(table_type) if path.is_empty() => (table_type, format!("`[{}]`", key.name)),
            ValueType::Table(table_type) => (table_type, format!("`{}`", key.written())),
            ValueType::Tables(table_type) => (table_type, format!("`{}`", key.written())),
            ValueType::NamedTables(table_type) => (table_type, format!("`[{}.<name>]`", key.name)),
            _ => continue,
        };
        let (path, marks) = (format!("{path}{}", key.name), "#".repeat(level));
        let _ = writeln!(page, "\n{marks} `{path}`\n\n{}. Written as {written}.", key.about);
        if let TableType::Endpoint(direction) = table_type {
            let _ = write!(page, "\n{}", table(&[kind::key(direction)], ""));
        }
        let path_of_keys = format!("{path}.");
        for (kind, mut keys) in table_type.variants() {
            if let Some(kind) = kind {
                keys.retain(|key| key.name != "kind");
                let _ = writeln!(page, "\n{marks}# `{path}` of kind `{kind}`");
            }
            let _ = write!(page, "\n{}{}", table(&keys, &path_of_keys), rules(&keys));
            add_sections(page, &keys, &path_of_keys, level + 1);
        }
    }
}

fn table(keys: &[Key], path: &str) -> String {
    let mut table = "| key | type | default | description |\n|---|---|---|---|\n".to_owned();
    for key in keys {
        let names: Vec<_> = key.names().iter().map(|name| format!("`{name}`")).collect();
        let about = key.description().replace('|', "\\|");
        let _ = writeln!(
            table,
            "| {} | {} | {} | {about} |",
            names.join(", "),
            type_name(key, path),
            default(key)
        );
    }
    table
}

fn type_name(key: &Key, path: &str) -> String {
    let link = |what: &str| {
        let anchor = format!("{path}{}", key.name).replace('.', "");
        format!("[{what}](#{anchor})")
    };
    match key.value_type {
        ValueType::String => "string".to_owned(),
        ValueType::Choice(choices) => words(choices, "or"),
        ValueType::Flag => "`true` or `false`".to_owned(),
        ValueType::Number => "whole number, at least 1".to_owned(),
        ValueType::Decimal => "number".to_owned(),
        ValueType::Duration => "duration".to_owned(),
        ValueType::Rate => "rate".to_owned(),
        ValueType::Strings => "list of strings".to_owned(),
        ValueType::Numbers => "list of whole numbers".to_owned(),
        ValueType::Durations => "list of durations".to_owned(),
        ValueType::Listen => "address".to_owned(),
        ValueType::Url => "URL".to_owned(),
        ValueType::Database => "URL or path".to_owned(),
        ValueType::Secret => "secret".to_owned(),
        ValueType::Reference(section) => format!("name in [`{section}`](#{section})"),
        ValueType::Table(_) => link("table"),
        ValueType::Tables(_) => link("list of tables"),
        ValueType::NamedTables(_) => link("tables by name"),
    }
}

fn default(key: &Key) -> String {
    match (key.is_required, key.default, key.value_type) {
        (true, ..) => "required".to_owned(),
        (false, Some(default), _) => format!("`{default}`"),
        (false, None, ValueType::Reference(_)) => "the only one".to_owned(),
        (false, None, _) => String::new(),
    }
}

/// The rules of keys that require or exclude each other, as sentences.
fn rules(keys: &[Key]) -> String {
    let members = |group: &[&'static str]| {
        let members: Vec<_> =
            group.iter().copied().filter(|name| keys.iter().any(|key| key.name == *name)).collect();
        (members.len() > 1).then_some(members)
    };
    let together = REQUIRED_TOGETHER.into_iter().filter_map(members);
    let together = together.map(|group| format!("\n{} require each other.\n", words(&group, "and")));
    let exclusive = MUTUALLY_EXCLUSIVE.into_iter().filter_map(members);
    let exclusive = exclusive.map(|group| format!("\nAt most one of {} may be set.\n", words(&group, "and")));
    together.chain(exclusive).collect()
}

fn words(words: &[&str], last: &str) -> String {
    let words: Vec<_> = words.iter().map(|word| format!("`{word}`")).collect();
    match &words[..] {
        [words @ .., end] if !words.is_empty() => format!("{} {last} {end}", words.join(", ")),
        words => words.concat(),
    }
}

#[test]
fn reference_page_is_up_to_date() {
    if env::var_os("UPDATE_EXPECTED").is_some() {
        fs::write(PAGE, page()).unwrap();
    }
    let is_same = fs::read_to_string(PAGE).is_ok_and(|text| text == page());
    assert!(is_same, "docs/reference/configuration.md: run this test with UPDATE_EXPECTED=1");
}
