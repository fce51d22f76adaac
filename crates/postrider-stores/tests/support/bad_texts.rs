//! Invalid texts for staging paths other than the Rust API, which must refuse them alike.

use postrider_core::{Message, MessageBuilder};
use rand::RngExt;

pub(crate) fn order() -> MessageBuilder {
    Message::builder("orders").payload("1")
}

/// Invalid messages, and the same in SQL: the name of an argument or column, and its value.
pub(crate) fn bad_texts() -> Vec<(MessageBuilder, &'static str, String)> {
    let long = |len| "x".repeat(len);
    let header = |name: &str, value: &str| {
        (order().header(name, value), "headers", serde_json::json!({ name: value }).to_string())
    };
    let mut many = order();
    let mut object = serde_json::Map::new();
    for n in 0..65 {
        many = many.header(format!("h{n}"), "v");
        object.insert(format!("h{n}"), "v".into());
    }
    let mut cases = vec![
        (Message::builder(""), "queue", String::new()),
        (Message::builder(long(256)), "queue", long(256)),
        (Message::builder("my orders"), "queue", "my orders".to_owned()),
        (Message::builder("orders\n"), "queue", "orders\n".to_owned()),
        (Message::builder("bestellungen\u{a0}köln"), "queue", "bestellungen\u{a0}köln".to_owned()),
        (Message::builder("ä\u{3000}"), "queue", "ä\u{3000}".to_owned()),
        (order().key(""), "key", String::new()),
        (order().key(long(256)), "key", long(256)),
        (order().key("ä".repeat(128)), "key", "ä".repeat(128)),
        (order().key("köln\u{7f}"), "key", "köln\u{7f}".to_owned()),
        (order().event_type("order placed"), "type", "order placed".to_owned()),
        (order().event_type(""), "type", String::new()),
        (order().event_type(long(256)), "type", long(256)),
        (order().tenant(""), "tenant", String::new()),
        (order().tenant(long(300)), "tenant", long(300)),
        (order().tenant("a\tb"), "tenant", "a\tb".to_owned()),
        (order().subject(""), "subject", String::new()),
        (order().subject(long(256)), "subject", long(256)),
        (order().subject("\u{1b}[31mred"), "subject", "\u{1b}[31mred".to_owned()),
        (order().timer(""), "timer", String::new()),
        (order().timer(long(256)), "timer", long(256)),
        (order().timer("a\tb"), "timer", "a\tb".to_owned()),
        (order().content_type(""), "content_type", String::new()),
        (order().content_type(long(256)), "content_type", long(256)),
        (order().content_type("text/plain\r\nx: y"), "content_type", "text/plain\r\nx: y".to_owned()),
        (order().correlation_id(""), "correlation_id", String::new()),
        (order().correlation_id(long(256)), "correlation_id", long(256)),
        (order().correlation_id("a\u{85}"), "correlation_id", "a\u{85}".to_owned()),
        (order().causation_id(""), "causation_id", String::new()),
        (order().causation_id(long(256)), "causation_id", long(256)),
        (order().causation_id("\u{1}"), "causation_id", "\u{1}".to_owned()),
        (many, "headers", serde_json::Value::Object(object).to_string()),
        header("", "v"),
        header("a:b", "v"),
        header("a'b", "v"),
        header("a\"\\b", "v"),
        header("köln", "v"),
        header("a b", "v"),
        header(&long(129), "v"),
        header("Content-Type", "text/plain"),
        header("CE-id", "1"),
        header("postrider-x", "1"),
        header("note", &long(8 * 1024 + 1)),
        header("note", "a\r\nx: y"),
    ];
    let (zeros, ones) = ("0".repeat(32), "1".repeat(32));
    for bad in [
        "not-a-trace",
        "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "",
        "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
        &format!("00-{zeros}-{}-01", &ones[..16]),
        &format!("00-{ones}-{}-01", &zeros[..16]),
    ] {
        cases.push((order().traceparent(bad), "traceparent", bad.to_owned()));
    }
    cases
}

/// A short text with all sorts of characters.
pub(crate) fn random_text(random: &mut impl rand::Rng) -> String {
    let alphabet: Vec<char> = "aB7-_. \t\n\r\u{1}\u{1b}\u{7f}\u{85}\u{9f}\u{a0}\u{ad}\u{1680}\u{2003}\u{2028}\u{202f}\u{205f}\u{3000}äß€🦀\"'\\:{}%"
        .chars()
        .collect();
    let length = random.random_range(0..5);
    let mut character = |_| {
        if random.random_bool(0.6) { 'x' } else { alphabet[random.random_range(0..alphabet.len())] }
    };
    (0..length).map(&mut character).collect()
}
