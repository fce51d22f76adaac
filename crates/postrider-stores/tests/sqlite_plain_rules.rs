//! Plain SQL in SQLite refuses the same input as the Rust API, with the same errors without the values, which a trigger cannot print.

#![cfg(feature = "sqlite")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/bad_texts.rs"]
mod bad_texts;
#[path = "support/clients.rs"]
mod clients;
#[path = "support/polyglot.rs"]
mod polyglot;
#[path = "support/sqlite.rs"]
mod support;

use bad_texts::{bad_texts, order, random_text};
use clients::{Asked, CLIENTS, Client, asked};
use postrider_core::{Message, MessageBuilder, inspect::Inspect};
use serde_json::Value;
use std::time::{Duration, SystemTime};
use support::SqliteFixture;

/// An error of the Rust API without the details of the value: a length, a character and its position, a header's name.
fn without_values(error: &str) -> String {
    let (field, problem) = if let Some(rest) = error.strip_prefix("header ") {
        let at = rest.rfind("\": ").map(|at| at + 1).or_else(|| rest.find(": ")).unwrap();
        let field = if rest.starts_with("name") { "header name" } else { "header" };
        (field, &rest[at + 2..])
    } else {
        error.split_once(": ").unwrap()
    };
    let problem = match problem.split_once("; ") {
        Some((found, allowed)) if found.ends_with("bytes long") => format!("is too long; {allowed}"),
        Some((found, allowed)) if found.ends_with("entries") => format!("has too many entries; {allowed}"),
        Some((found, allowed)) if found.starts_with("contains ") => allowed.to_owned(),
        _ => match problem.find(" is not a UUID") {
            Some(at) => problem[at + 1..].to_owned(),
            None => problem.to_owned(),
        },
    };
    // SQL has one rule for a header's name instead of two.
    match (field, problem.as_str()) {
        ("header name", "neither white space nor control characters are allowed") => {
            "header name: letters, digits, '-', '_' and '.' are allowed".to_owned()
        }
        _ => format!("{field}: {problem}"),
    }
}

fn insert(column: &str, value: impl Into<Value>) -> Asked {
    let sql = match column {
        "queue" => "insert into postrider_outbox (payload, queue) values ('1', ?)".to_owned(),
        column => {
            format!("insert into postrider_outbox (queue, payload, {column}) values ('orders', '1', ?)")
        }
    };
    (sql, vec![value.into()])
}

/// Messages that break a rule, and the equivalent inserts.
fn bad_messages() -> Vec<(MessageBuilder, Asked)> {
    let texts = bad_texts().into_iter().map(|(message, column, value)| (message, insert(column, value)));
    let now = SystemTime::now();
    let both =
        "insert into postrider_outbox (queue, payload, due_at, due_after) values ('orders', '1', 1, 1)";
    let times = [
        (order().due_after(Duration::from_secs(1)).due_at(now), asked(both)),
        (
            order().due_after(Duration::from_secs(200 * 366 * 86_400)),
            insert("due_after", 200_u64 * 366 * 86_400),
        ),
        (
            order().due_at(SystemTime::UNIX_EPOCH - Duration::from_secs(1)),
            insert("due_at", "1969-12-31 23:59:59Z"),
        ),
        (order().due_at(SystemTime::UNIX_EPOCH - Duration::from_secs(1)), insert("due_at", -1)),
        (
            order().due_at(SystemTime::UNIX_EPOCH + Duration::from_secs(32_503_680_000)),
            insert("due_at", "3000-01-01 00:00:00Z"),
        ),
    ];
    texts.chain(times).collect()
}

#[tokio::test]
async fn invalid_input_has_same_errors_as_rust_api() {
    let (messages, inserts): (Vec<_>, Vec<_>) = bad_messages().into_iter().unzip();
    let expected: Vec<_> = messages
        .into_iter()
        .map(|message| without_values(&message.build().unwrap_err().to_string()))
        .collect();
    assert!(expected.len() > 50);
    for client in CLIENTS {
        let fixture = SqliteFixture::new().await;
        let results = client.all(&fixture.path(), &inserts).await;
        for ((result, expected), insert) in results.into_iter().zip(&expected).zip(&inserts) {
            assert_eq!(result.as_ref(), Err(expected), "{client:?}: {insert:?}");
        }
        assert!(fixture.store.counts().await.unwrap().is_empty(), "no queue was created, nothing was staged");
    }
}

/// Names with all kinds of characters are accepted and refused alike.
#[tokio::test]
async fn random_names_are_checked_alike_in_sql_and_rust() {
    let mut random = rand::rng();
    let (mut expected, mut inserts) = (Vec::new(), Vec::new());
    for round in 0..1_500 {
        let text = random_text(&mut random);
        let (message, insert) = match round % 3 {
            0 => (Message::builder(text.clone()), insert("queue", text)),
            1 => (order().key(text.clone()), insert("key", text)),
            _ => {
                let object = serde_json::json!({ &text: "v" }).to_string();
                (order().header(text, "v"), insert("headers", object))
            }
        };
        expected.push(message.build().map(|_| ()).map_err(|error| without_values(&error.to_string())));
        inserts.push(insert);
    }
    let accepted = expected.iter().filter(|one| one.is_ok()).count();
    assert!((200..1_300).contains(&accepted), "{accepted} accepted");
    for client in CLIENTS {
        let fixture = SqliteFixture::new().await;
        let results = client.all(&fixture.path(), &inserts).await;
        for ((result, expected), insert) in results.iter().zip(&expected).zip(&inserts) {
            assert_eq!(result, expected, "{client:?}: {insert:?}");
        }
    }
}

/// Input that the Rust types exclude has errors of its own.
#[tokio::test]
async fn invalid_sql_only_input_is_refused_with_its_name() {
    let given = |columns: &str, values: &str| {
        asked(format!(
            "insert into postrider_outbox (queue, payload, {columns}) values ('orders', 'x', {values})"
        ))
    };
    let plain = |columns: &str, values: &str| {
        asked(format!("insert into postrider_outbox ({columns}) values ({values})"))
    };
    let not_a_time =
        "due_at: is neither a time such as 2030-01-31T12:00:00Z nor a number of seconds since 1970";
    let not_a_uuid = "id: is not a UUID such as 01890a5d-ac96-774b-bcce-b302099a8057";
    let not_an_object = "headers: must be a JSON object of strings";
    let cases = [
        (plain("payload", "'x'"), "queue: must not be empty"),
        (plain("queue", "'orders'"), "payload: is missing"),
        (
            plain("queue, payload, payload_json", "'orders', '1', '2'"),
            "payload: cannot be combined with payload_json: give one of the two",
        ),
        (plain("queue, payload_json", "'orders', '{'"), "payload_json: is not JSON"),
        (plain("queue, payload_json", "'orders', x'00'"), "payload_json: is not JSON"),
        (
            plain("queue, payload", "'orders', zeroblob(16777217)"),
            "payload: is too long; at most 16777216 bytes are allowed",
        ),
        (given("headers", "'[]'"), not_an_object),
        (given("headers", "'{'"), not_an_object),
        (given("headers", "'{a: 1}'"), not_an_object),
        (given("headers", "17"), not_an_object),
        (given("headers", "x'7b7d'"), not_an_object),
        (given("headers", r#"'{"a": 1}'"#), "header: must be a string"),
        (given("headers", r#"'{"a": null}'"#), "header: must be a string"),
        (given("headers", r#"'{"a": {"b": "c"}}'"#), "header: must be a string"),
        (given("headers", r#"'{"a": "b\u0000c"}'"#), "header: control characters are not allowed"),
        (given("headers", r#"'{"a": "\\\u0000c"}'"#), "header: control characters are not allowed"),
        (given("on_conflict", "'replace'"), "on_conflict: must be ignore or extend"),
        (given("due_after", "-1"), "due_after: must not be negative"),
        (given("due_after", "'-0.5'"), "due_after: must not be negative"),
        (given("due_after", "9e999"), "due_after: lies more than 100 years ahead"),
        (given("due_after", "'1 hour'"), "due_after: is not a number of seconds"),
        (given("due_after", "''"), "due_after: is not a number of seconds"),
        (given("due_after", "'1.2.3'"), "due_after: is not a number of seconds"),
        (given("due_after", "x'31'"), "due_after: is not a number of seconds"),
        (given("due_at", "9e999"), "due_at: lies after the year 2170"),
        (given("due_at", "1794751333040"), "due_at: lies after the year 2170"),
        (given("due_at", "'soon'"), not_a_time),
        (given("due_at", "'now'"), not_a_time),
        (given("due_at", "'2460000.5'"), not_a_time),
        (given("due_at", "'2030-02-31 25:00:00'"), not_a_time),
        (given("due_at", "x'32'"), not_a_time),
        (given("id", "'17'"), not_a_uuid),
        (given("id", "17"), not_a_uuid),
        (given("id", "x'00'"), not_a_uuid),
        (given("id", "'01890a5d-ac96-774b-bcce-b302099a805x'"), not_a_uuid),
        (given("id", "'01890a5d-ac96-774b-bcce-b302099a805700'"), not_a_uuid),
        (given("id", "'01890a5d-ac96-774b-bcce-b302099a8057' || char(0)"), not_a_uuid),
        (given("key", "x'6b'"), "key: must be text in UTF-8"),
        (given("key", "'a' || char(0) || 'b'"), "key: control characters are not allowed"),
        // A truncated character, an invalid byte, an overlong encoding, and half of a surrogate pair.
        (given("key", "cast(x'41c3' as text)"), "key: must be text in UTF-8"),
        (given("key", "cast(x'41a5' as text)"), "key: must be text in UTF-8"),
        (given("key", "cast(x'e083a9' as text)"), "key: must be text in UTF-8"),
        (given("key", "cast(x'eda080' as text)"), "key: must be text in UTF-8"),
        (given("type", "cast(x'c328' as text)"), "type: must be text in UTF-8"),
        (plain("queue, payload", "cast(x'ff' as text), 'x'"), "queue: must be text in UTF-8"),
        (
            given("traceparent", "x'00'"),
            "traceparent: is not a W3C trace context such as 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        ),
    ];
    let inserts: Vec<_> = cases.iter().map(|(insert, _)| insert.clone()).collect();
    for client in CLIENTS {
        let fixture = SqliteFixture::new().await;
        for (result, (insert, expected)) in client.all(&fixture.path(), &inserts).await.iter().zip(&cases) {
            assert_eq!(result.as_ref().map_err(String::as_str), Err(*expected), "{client:?}: {insert:?}");
        }
        assert!(fixture.store.counts().await.unwrap().is_empty());
    }
}

/// Values at the edge of a rule are accepted.
#[tokio::test]
async fn valid_edge_cases_are_accepted() {
    let longest = "x".repeat(255);
    let values: [(&str, Value); 18] = [
        ("key", longest.clone().into()),
        ("key", "ü".repeat(127).into()),
        ("key", 17.into()),
        ("key", "one line, with spaces: Köln\u{a0}\u{ad}\u{fffd}🦀".into()),
        ("type", "straße.gebaut".into()),
        ("timer", longest.clone().into()),
        ("content_type", "application/json".into()),
        ("headers", "null".into()),
        ("headers", "{}".into()),
        ("headers", r#" {"a" : "\\u0000 \u00e9"} "#.into()),
        ("headers", serde_json::json!({ "x".repeat(128): "y".repeat(8192) }).to_string().into()),
        ("due_after", 0.into()),
        ("due_after", 0.25.into()),
        ("due_after", (36_600_u64 * 86_400).into()),
        ("due_at", 0.into()),
        ("due_at", "2026-01-31".into()),
        ("on_conflict", "extend".into()),
        ("queue", longest.into()),
    ];
    let inserts: Vec<_> = values.into_iter().map(|(column, value)| insert(column, value)).collect();
    for client in CLIENTS {
        let fixture = SqliteFixture::new().await;
        let mut inserts = inserts.clone();
        inserts.push(asked(
            "insert into postrider_outbox (queue, payload) values ('orders', zeroblob(16777216))",
        ));
        for (result, insert) in client.all(&fixture.path(), &inserts).await.into_iter().zip(&inserts) {
            assert_eq!(result, Ok(()), "{client:?}: {insert:?}");
        }
    }
}

#[test]
fn without_values_strips_only_the_values() {
    for (error, expected) in [
        (
            "key: is 256 bytes long; at most 255 bytes are allowed",
            "key: is too long; at most 255 bytes are allowed",
        ),
        ("key: contains ';' at byte 3; no", "key: no"),
        ("header \"a: b\": contains '\\n' at byte 1; no", "header: no"),
        ("due_at: lies before 1970; leave it out", "due_at: lies before 1970; leave it out"),
        ("id: \"x\" is not a UUID such as y", "id: is not a UUID such as y"),
    ] {
        assert_eq!(without_values(error), expected);
    }
    assert!(matches!(CLIENTS, [Client::Python, Client::BuiltIn]));
}
