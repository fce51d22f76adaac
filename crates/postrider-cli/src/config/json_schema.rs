//! The JSON Schema of `postrider.toml`, for editors: made of the data of the keys.
//!
//! It accepts every valid file. What depends on other parts of the file, on the environment or on the build is left to
//! `postrider config check`.

use super::{
    key::{Direction, MUTUALLY_EXCLUSIVE, REQUIRED_TOGETHER},
    key_type::{Key, TableType, ValueType, references},
    kind, root,
};
use crate::{duration, rate};
use serde_json::{Map, Value, json};

const DIALECT: &str = "https://json-schema.org/draft/2020-12/schema";
const VARIABLE: &str = "^[A-Za-z_][A-Za-z0-9_]*$";

/// The schema, in the dialect 2020-12.
pub(crate) fn json_schema() -> Value {
    let mut schema = object(&root::keys());
    schema["$schema"] = DIALECT.into();
    schema["title"] = "postrider.toml".into();
    schema["description"] = "Configuration of `postrider run`".into();
    let not_empty =
        |section: &&str| json!({ "required": [section], "properties": { *section: { "minItems": 1 } } });
    schema["anyOf"] = root::ANY_OF.iter().map(not_empty).collect();
    schema
}

fn table(table_type: TableType) -> Value {
    match table_type {
        TableType::Section { keys, .. } => object(&keys()),
        TableType::Endpoint(direction) => endpoint(table_type, direction),
    }
}

/// One schema for each kind. The kind is checked on its own, too: an editor reports an unknown one at its place.
fn endpoint(table_type: TableType, direction: Direction) -> Value {
    let key = kind::key(direction);
    let kinds = table_type.variants().into_iter().map(|(kind, keys)| {
        let mut schema = object(&keys);
        let kind = kind.map(|kind| kind.to_string());
        schema["properties"][key.name] = described(&key, json!({ "const": kind }));
        schema
    });
    json!({
        "type": "object",
        "required": [key.name],
        "properties": { key.name: value(&key) },
        "oneOf": kinds.collect::<Vec<_>>(),
    })
}

fn object(keys: &[Key]) -> Value {
    let properties: Map<_, _> = keys.iter().flat_map(properties).collect();
    let required: Vec<_> =
        keys.iter().filter(|key| key.is_required && !key.is_secret()).map(|key| key.name).collect();
    let rules: Vec<_> = keys.iter().flat_map(own_rules).chain(group_rules(keys)).collect();
    let mut schema = json!({ "type": "object", "additionalProperties": false, "properties": properties });
    if !required.is_empty() {
        schema["required"] = required.into();
    }
    if !rules.is_empty() {
        schema["allOf"] = rules.into();
    }
    schema
}

/// The properties of a key: a URL or a secret has one for each way to set it.
fn properties(key: &Key) -> Vec<(String, Value)> {
    let mut properties = Vec::new();
    if !matches!(key.value_type, ValueType::Secret) {
        properties.push((key.name.to_owned(), described(key, value(key))));
    }
    if key.is_secret() {
        let [variable, file] = references(key.name);
        let about = |what: &str| format!("{what} that holds `{}`. {}", key.name, key.description());
        let variable_schema =
            json!({ "type": "string", "pattern": VARIABLE, "description": about("Environment variable") });
        properties.push((variable, variable_schema));
        properties.push((file, json!({ "type": "string", "description": about("Path of a file") })));
    }
    properties
}

fn described(key: &Key, mut schema: Value) -> Value {
    schema["description"] = key.description().into();
    // Scalars and lists of them are the same in TOML and in JSON.
    if let Some(default) = key.default.and_then(|toml| serde_json::from_str::<Value>(toml).ok()) {
        schema["default"] = default;
    }
    if !matches!(key.value_type, ValueType::Choice(_) | ValueType::Flag)
        && let Ok(example) = serde_json::from_str::<Value>(key.example)
    {
        schema["examples"] = json!([example]);
    }
    schema
}

fn value(key: &Key) -> Value {
    let list = |items: Value| json!({ "type": "array", "items": items });
    let string = || json!({ "type": "string" });
    let duration = || json!({ "type": "string", "pattern": duration::PATTERN });
    let mut schema = match key.value_type {
        ValueType::String | ValueType::Reference(_) => string(),
        ValueType::Url | ValueType::Database | ValueType::Secret => string(),
        ValueType::Choice(words) => json!({ "type": "string", "enum": words }),
        ValueType::Flag => json!({ "type": "boolean" }),
        ValueType::Number => json!({ "type": "integer", "minimum": 1, "maximum": u32::MAX }),
        ValueType::Decimal => json!({ "type": "number" }),
        ValueType::Duration => duration(),
        ValueType::Rate => json!({ "type": "string", "pattern": rate::PATTERN }),
        ValueType::Strings => list(string()),
        ValueType::Numbers => list(json!({ "type": "integer", "minimum": 0, "maximum": u32::MAX })),
        ValueType::Durations => list(duration()),
        ValueType::Listen => json!({ "type": "string", "pattern": "^(off|.+:[0-9]+)$" }),
        ValueType::Table(table_type) => table(table_type),
        ValueType::Tables(table_type) => list(table(table_type)),
        ValueType::NamedTables(table_type) => {
            json!({ "type": "object", "additionalProperties": table(table_type) })
        }
    };
    if key.is_required {
        match key.value_type {
            ValueType::Strings | ValueType::Tables(_) => schema["minItems"] = 1.into(),
            ValueType::NamedTables(_) => schema["minProperties"] = 1.into(),
            _ => {}
        }
    }
    schema
}

/// The rules of one key: it is set in one way at most, and not together with a key that it conflicts with.
fn own_rules(key: &Key) -> Vec<Value> {
    let names = key.names();
    let mut rules: Vec<_> = pairs(&names).map(|pair| json!({ "not": { "required": pair } })).collect();
    if key.is_required && key.is_secret() {
        rules.push(is_set(key));
    }
    if let Some((other, _)) = key.conflict {
        rules.push(json!({ "not": { "required": [key.name, other] } }));
    }
    rules
}

/// The rules of keys that require or exclude each other.
fn group_rules(keys: &[Key]) -> Vec<Value> {
    let members =
        |group: &[&str]| keys.iter().filter(|key| group.contains(&key.name)).map(is_set).collect::<Vec<_>>();
    let together = REQUIRED_TOGETHER.into_iter().map(members).filter(|set| set.len() > 1);
    let exclusive = MUTUALLY_EXCLUSIVE.into_iter().map(members).filter(|set| set.len() > 1);
    let together = together.map(|set| json!({ "if": { "anyOf": set }, "then": { "allOf": set } }));
    let exclusive = exclusive.flat_map(|set| {
        let pairs: Vec<_> = pairs(&set).map(|pair| json!({ "not": { "allOf": pair } })).collect();
        pairs
    });
    together.chain(exclusive).collect()
}

/// The condition that a key is set under any of its names.
fn is_set(key: &Key) -> Value {
    match &key.names()[..] {
        [name] => json!({ "required": [name] }),
        names => {
            json!({ "anyOf": names.iter().map(|name| json!({ "required": [name] })).collect::<Vec<_>>() })
        }
    }
}

fn pairs<T>(all: &[T]) -> impl Iterator<Item = [&T; 2]> {
    all.iter()
        .enumerate()
        .flat_map(|(index, first)| all.iter().skip(index + 1).map(move |second| [first, second]))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All tables below these keys that have no tables themselves.
    fn innermost_tables(keys: &[Key]) -> Vec<TableType> {
        let tables = keys.iter().filter_map(|key| match key.value_type {
            ValueType::Table(table) | ValueType::Tables(table) | ValueType::NamedTables(table) => Some(table),
            _ => None,
        });
        let inner = |table: TableType| {
            let below: Vec<_> =
                table.variants().into_iter().flat_map(|(_, keys)| innermost_tables(&keys)).collect();
            if below.is_empty() { vec![table] } else { below }
        };
        tables.flat_map(inner).collect()
    }

    /// The key with its example; a secret, or a URL, in a variable.
    fn written(key: &Key) -> (String, Value) {
        match key.is_secret() {
            true => (format!("{}_env", key.name), "VARIABLE".into()),
            false => (key.name.to_owned(), serde_json::from_str(key.example).unwrap()),
        }
    }

    /// Every key is accepted with its example beside the required ones, and rejected with a table as its value.
    #[test]
    fn schema_accepts_the_example_of_every_key() {
        let mut count = 0;
        for table_type in innermost_tables(&root::keys()) {
            for (kind, keys) in table_type.variants() {
                let kind = kind.map(|kind| ("kind".to_owned(), kind.to_string().into()));
                let required: Map<_, _> =
                    keys.iter().filter(|key| key.is_required).map(written).chain(kind).collect();
                let schema = jsonschema::draft202012::new(&table(table_type)).unwrap();
                for key in keys.iter().filter(|key| key.name != "kind") {
                    let group = REQUIRED_TOGETHER.into_iter().find(|group| group.contains(&key.name));
                    let others =
                        keys.iter().filter(|other| group.is_some_and(|group| group.contains(&other.name)));
                    let mut file = required.clone();
                    file.extend(others.chain([key]).map(written));
                    assert!(schema.is_valid(&file.clone().into()), "{file:?}");
                    file.insert(written(key).0, json!({}));
                    assert!(!schema.is_valid(&file.clone().into()), "{file:?}");
                    count += 1;
                }
            }
        }
        assert!(count > 80, "only {count} keys were found");
    }

    fn matches(pattern: &str, text: &str) -> bool {
        jsonschema::is_valid(&json!({ "type": "string", "pattern": pattern }), &text.into())
    }

    /// The schema accepts every duration and rate that the program reads.
    #[test]
    fn patterns_accept_valid_durations_and_rates() {
        for text in [
            "10", "1.5", "10s", "2m", "1.5s", "250ms", "1h", "7d", "1.5d", "1h30m", "1d 12h", "2 weeks",
            "1h 30m",
        ] {
            assert!(duration::parse(text).is_ok() && matches(duration::PATTERN, text), "{text}");
        }
        for text in ["", "s", "ten", "10x", "-1", "-1s", "1s ago", "1..2s", "inf", "1mo", "a week"] {
            assert!(duration::parse(text).is_err() && !matches(duration::PATTERN, text), "{text}");
        }
        for (text, is_valid) in [
            ("100/s", true),
            ("6000/m", true),
            ("100", true),
            ("0/s", false),
            ("10/d", false),
            ("fast", false),
        ] {
            assert_eq!(text.parse::<rate::Rate>().is_ok(), is_valid, "{text}");
            assert_eq!(matches(rate::PATTERN, text), is_valid, "{text}");
        }
    }
}
