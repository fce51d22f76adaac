//! The wire format of messages in SQS and SNS: a text body, and at most ten attributes.
//!
//! | attribute | content |
//! |---|---|
//! | `content-type` | the content type of the payload |
//! | `content-transfer-encoding` | only if the body is not the payload itself: `base64`, or `empty` |
//! | `ce_…` | CloudEvents attributes, in binary mode |
//! | any other | the message's headers and its trace context, under their own names |
//! | `postrider-more` | a JSON object of names and values: the attributes beyond the limit |
//!
//! All of them have the type `String`. **Ten is the limit** of the services. If there are more, the first nine are attributes of their own, in
//! the order of the table, with the required attributes of CloudEvents before headers and the optional ones after them; the others are in
//! `postrider-more`, under the same names. So are attributes that the services do not accept: empty values, forbidden characters, reserved
//! names. No attribute is dropped and none is changed.
//!
//! **The body** is the payload if that is text which both services carry: not empty, UTF-8, and no control character but tab and line
//! ends. Every other payload is encoded as base64. A body cannot be empty, so an empty payload is the word `empty`, marked by its encoding.

use base64::{Engine, engine::general_purpose::STANDARD};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use postrider_core::{Outgoing, Text};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use std::{borrow::Cow, collections::BTreeSet, fmt::Write};

/// The data type of every attribute. It counts towards the size of the message.
pub(crate) const STRING: &str = "String";

pub(crate) const CONTENT_TYPE: &str = "content-type";
pub(crate) const ENCODING: &str = "content-transfer-encoding";
pub(crate) const MORE: &str = "postrider-more";
pub(crate) const EVENT: &str = "ce_";
/// The most attributes of a message.
const MAX_ATTRIBUTES: usize = 10;
/// The attributes that CloudEvents requires, and that most consumers read.
const REQUIRED: [&str; 5] = ["specversion", "id", "source", "type", "time"];
const MAX_GROUP_LENGTH: usize = 128;
/// Characters that are percent-encoded in a group id: it may contain letters, digits and punctuation only.
const ENCODED_IN_GROUPS: &AsciiSet = &CONTROLS.add(b' ').add(b'%');

/// An encoded message: one entry of a batch request.
#[derive(Debug, Clone, Default)]
pub(crate) struct BatchEntry {
    pub(crate) body: String,
    pub(crate) attributes: Vec<(String, String)>,
    /// Only for FIFO: message group id and deduplication id.
    pub(crate) group: Option<String>,
    pub(crate) deduplication: Option<String>,
    /// The size, as the services count it.
    pub(crate) bytes: usize,
}

impl BatchEntry {
    /// Encodes a message, with its group for FIFO. The error says why the message can never be sent.
    pub(super) fn write(
        outgoing: &Outgoing,
        group: Option<String>,
        max_bytes: usize,
    ) -> Result<Self, String> {
        let (body, encoding) = body(&outgoing.body);
        let attributes = attributes(outgoing, encoding)?;
        let sizes = attributes.iter().map(|(name, value)| name.len() + STRING.len() + value.len());
        let bytes = body.len() + sizes.sum::<usize>();
        if bytes > max_bytes {
            return Err(format!(
                "the message has {bytes} bytes with its attributes; the limit is {max_bytes}: send a smaller payload"
            ));
        }
        let deduplication = group.is_some().then(|| outgoing.id.to_string());
        Ok(Self { body, attributes, group, deduplication, bytes })
    }
}

/// The message group id of FIFO: the key, percent-encoded, or its hash if that is too long; the message's id if it has no key.
pub(super) fn group(outgoing: &Outgoing) -> String {
    let key = outgoing.partition_key();
    let group = utf8_percent_encode(&key, ENCODED_IN_GROUPS).to_string();
    if group.len() <= MAX_GROUP_LENGTH {
        return group;
    }
    let mut hash = "sha256-".to_owned();
    for byte in Sha256::digest(key.as_bytes()) {
        // Writing to a string cannot fail.
        write!(hash, "{byte:02x}").ok();
    }
    hash
}

fn body(payload: &[u8]) -> (String, Option<&'static str>) {
    match std::str::from_utf8(payload) {
        Ok("") => ("empty".to_owned(), Some("empty")),
        Ok(text) if text.chars().all(is_carried) => (text.to_owned(), None),
        _ => (STANDARD.encode(payload), Some("base64")),
    }
}

/// The characters of XML 1.0. The services refuse others, or replace them silently.
fn is_carried(character: char) -> bool {
    matches!(character, '\t' | '\n' | '\r' | ' '..='\u{D7FF}' | '\u{E000}'..='\u{FFFD}' | '\u{10000}'..)
}

fn attributes(outgoing: &Outgoing, encoding: Option<&'static str>) -> Result<Vec<(String, String)>, String> {
    let mut more = Map::new();
    let mut attributes = Vec::new();
    for (name, value) in ordered_attributes(outgoing, encoding)? {
        match is_valid_attribute(&name, value) {
            true => attributes.push((name.into_owned(), value.to_owned())),
            false => {
                more.insert(name.into_owned(), value.into());
            }
        }
    }
    if attributes.len() + usize::from(!more.is_empty()) > MAX_ATTRIBUTES {
        let beyond = attributes.split_off(MAX_ATTRIBUTES - 1);
        more.extend(beyond.into_iter().map(|(name, value)| (name, Value::from(value))));
    }
    if !more.is_empty() {
        attributes.push((MORE.to_owned(), json(more)));
    }
    Ok(attributes)
}

/// All attributes of a message, in order of precedence.
fn ordered_attributes<'o>(
    outgoing: &'o Outgoing,
    encoding: Option<&'static str>,
) -> Result<Vec<(Cow<'o, str>, &'o str)>, String> {
    let is_required = |(name, _): &&(&str, Text)| REQUIRED.contains(name);
    let event = |(name, value): &'o (&'static str, Text)| (format!("{EVENT}{name}").into(), value.as_str());
    let events = &outgoing.attributes;
    let mut named = vec![(CONTENT_TYPE.into(), outgoing.content_type.as_str())];
    named.extend(encoding.map(|encoding| (ENCODING.into(), encoding)));
    named.extend(events.iter().filter(is_required).map(event));
    for (name, value) in &outgoing.headers {
        if [CONTENT_TYPE, ENCODING, MORE].contains(&name.as_str()) || name.starts_with(EVENT) {
            return Err(format!("the header name {name:?} is reserved for an attribute; rename the header"));
        }
        named.push((name.as_str().into(), value));
    }
    named.extend(events.iter().filter(|each| !is_required(each)).map(event));
    let mut seen = BTreeSet::new();
    match named.iter().find(|(name, _)| !seen.insert(name)) {
        Some((name, _)) => Err(format!("the header {name:?} occurs twice; send it once")),
        None => Ok(named),
    }
}

/// Whether both services accept the name and the value.
fn is_valid_attribute(name: &str, value: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let lower = name.to_ascii_lowercase();
    let is_reserved = lower.starts_with("aws.") || lower.starts_with("amazon.");
    let has_odd_dots = name.starts_with('.') || name.ends_with('.') || name.contains("..");
    (1..=256).contains(&name.len())
        && name.bytes().all(is_plain)
        && !is_reserved
        && !has_odd_dots
        && !value.is_empty()
        && value.chars().all(is_carried)
}

/// JSON of characters that the services carry. The serializer escapes control characters; two others remain.
fn json(more: Map<String, Value>) -> String {
    Value::Object(more).to_string().replace('\u{FFFE}', "\\ufffe").replace('\u{FFFF}', "\\uffff")
}

#[cfg(test)]
mod tests {
    use super::*;
    use postrider_core::{Format, Message, MessageBuilder, MessageId};
    use std::time::SystemTime;

    const LIMIT: usize = 1_048_576;

    fn outgoing(builder: MessageBuilder) -> Outgoing {
        let (now, message) = (SystemTime::UNIX_EPOCH, builder.build().unwrap());
        let id = MessageId::at(now);
        Outgoing::write(&message, id, now, "/shop", "orders".to_owned(), Format::Binary).unwrap()
    }

    fn order() -> MessageBuilder {
        Message::builder("orders").event_type("placed").content_type("text/plain").payload("x")
    }

    fn written(builder: MessageBuilder) -> BatchEntry {
        BatchEntry::write(&outgoing(builder), None, LIMIT).unwrap()
    }

    fn names(entry: &BatchEntry) -> Vec<&str> {
        entry.attributes.iter().map(|(name, _)| name.as_str()).collect()
    }

    fn more(entry: &BatchEntry) -> Value {
        let found = entry.attributes.iter().find(|(name, _)| name == MORE);
        found.map_or(Value::Null, |(_, text)| serde_json::from_str(text).unwrap())
    }

    #[test]
    fn body_keeps_text_and_encodes_the_rest() {
        for (payload, expected, encoding) in [
            (&b"a\tb\r\nc \xC3\xA4\xF0\x9F\x98\x80\x7F"[..], "a\tb\r\nc ä😀\u{7f}", None),
            (b"", "empty", Some("empty")),
            (b"empty", "empty", None),
            (b"\0", "AA==", Some("base64")),
            (b"a\x0Bb", "YQti", Some("base64")),
            (b"\xFF", "/w==", Some("base64")),
            ("\u{FFFE}".as_bytes(), "77++", Some("base64")),
        ] {
            assert_eq!(body(payload), (expected.to_owned(), encoding), "{payload:?}");
        }
    }

    #[test]
    fn few_attributes_are_written_one_by_one() {
        let entry = written(order().header("color", "blue").key("17"));
        let expected = [
            "content-type",
            "ce_specversion",
            "ce_id",
            "ce_source",
            "ce_type",
            "ce_time",
            "color",
            "ce_partitionkey",
        ];
        assert_eq!(names(&entry), expected);
    }

    #[test]
    fn attributes_beyond_ten_go_to_postrider_more() {
        let mut builder = order().key("17").tenant("acme");
        for number in 0..20 {
            builder = builder.header(format!("h{number:02}"), number.to_string());
        }
        let entry = written(builder);
        assert_eq!(entry.attributes.len(), 10);
        assert_eq!(names(&entry)[6..], ["h00", "h01", "h02", MORE]);
        let more = more(&entry);
        assert_eq!((&more["h03"], &more["h19"]), (&Value::from("3"), &Value::from("19")));
        assert_eq!(
            (&more["ce_partitionkey"], &more["ce_tenantid"]),
            (&Value::from("17"), &Value::from("acme"))
        );
        assert_eq!(more.as_object().unwrap().len(), 19);
    }

    #[test]
    fn exactly_ten_attributes_need_no_postrider_more() {
        let entry = written(order().key("17").header("a", "1").header("b", "2").header("c", "3"));
        assert_eq!(entry.attributes.len(), 10);
        assert_eq!(more(&entry), Value::Null);
    }

    #[test]
    fn attributes_that_the_services_refuse_go_to_postrider_more() {
        let mut message = outgoing(order());
        let odd =
            [("empty", ""), ("aws.x", "1"), ("Amazon.x", "1"), ("a..b", "1"), (".a", "1"), ("a b", "1")];
        let bent = [("nul", "a\0b"), ("bell", "\u{7}"), ("last", "a\u{FFFF}\u{FFFE}")];
        for (name, value) in odd.into_iter().chain(bent) {
            message.headers.push((name.to_owned(), value.to_owned()));
        }
        let entry = BatchEntry::write(&message, None, LIMIT).unwrap();
        assert_eq!(names(&entry).last(), Some(&MORE));
        let more = more(&entry);
        for (name, value) in odd.into_iter().chain(bent) {
            assert_eq!(more[name], value, "{name}");
        }
        assert!(entry.attributes.iter().all(|(_, value)| value.chars().all(is_carried)));
    }

    #[test]
    fn header_with_reserved_or_repeated_name_is_refused() {
        for name in ["content-type", "content-transfer-encoding", "postrider-more", "ce_id", "ce_new"] {
            let mut message = outgoing(order());
            message.headers.push((name.to_owned(), "mine".to_owned()));
            assert!(BatchEntry::write(&message, None, LIMIT).is_err(), "{name}");
        }
        let mut message = outgoing(order().header("a", "1"));
        message.headers.push(("a".to_owned(), "2".to_owned()));
        assert_eq!(
            BatchEntry::write(&message, None, LIMIT).unwrap_err(),
            "the header \"a\" occurs twice; send it once"
        );
    }

    #[test]
    fn size_counts_body_and_attributes() {
        let entry = written(order());
        let by_hand =
            entry.attributes.iter().map(|(name, value)| name.len() + value.len() + 6).sum::<usize>() + 1;
        assert_eq!(entry.bytes, by_hand);
        let message = outgoing(order());
        assert!(BatchEntry::write(&message, None, by_hand).is_ok());
        assert!(BatchEntry::write(&message, None, by_hand - 1).unwrap_err().starts_with("the message has "));
    }

    #[test]
    fn group_is_the_encoded_key_its_hash_or_the_id() {
        assert_eq!(group(&outgoing(order().key("order 17%/ä"))), "order%2017%25/%C3%A4");
        let without = outgoing(order());
        assert_eq!(group(&without), without.id.to_string());
        let long = |key: &str| group(&outgoing(order().key(key)));
        assert_eq!(long(&"k".repeat(128)).len(), 128);
        let (one, other) = (long(&"k".repeat(129)), long(&"k".repeat(130)));
        assert!(one.starts_with("sha256-") && one.len() == 71 && one != other, "{one}");
        let entry = BatchEntry::write(&without, Some(group(&without)), LIMIT).unwrap();
        assert_eq!(entry.deduplication, Some(without.id.to_string()));
        assert_eq!(written(order()).group, None);
    }
}
