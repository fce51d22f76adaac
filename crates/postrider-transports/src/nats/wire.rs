//! Encodes a message for NATS: subject and headers.

use async_nats::{
    HeaderMap, HeaderName, HeaderValue,
    header::{IntoHeaderName, NATS_EXPECTED_STREAM, NATS_MESSAGE_ID},
};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use postrider_core::{Outgoing, PublishError};
use std::str::FromStr;

/// The protocol line of a message contains its subject and may have 4,096 bytes. The server closes a connection that sends a longer
/// line, and with it the messages of all other calls.
const MAX_SUBJECT_BYTES: usize = 3_900;
/// ASCII characters that the CloudEvents binding percent-encodes in header values; all non-ASCII characters are encoded, too.
const ENCODED: &AsciiSet = &CONTROLS.add(b' ').add(b'"').add(b'%');

/// Checks a subject to publish to.
pub(super) fn check_subject(subject: &str) -> Result<(), String> {
    let wrong = |why: &str| Err(format!("{subject:?} is not a valid subject: {why}"));
    if subject.len() > MAX_SUBJECT_BYTES {
        let length = subject.len();
        return Err(format!("a subject of {length} bytes is too long; {MAX_SUBJECT_BYTES} are allowed"));
    }
    if subject.split('.').any(str::is_empty) {
        return wrong("it has an empty token");
    }
    if subject.contains(|c: char| c.is_whitespace() || c.is_control()) {
        return wrong("it contains a blank or a control character");
    }
    if subject.contains(['*', '>']) {
        return wrong("'*' and '>' are wildcards for subscribers");
    }
    // Messages to such subjects are requests to the server: a name taken from data must not become one.
    if subject.starts_with('$') || subject.starts_with("_INBOX.") {
        return wrong("it is reserved for the server");
    }
    Ok(())
}

/// The headers: attributes under their names in the binding, and the id where the server deduplicates.
pub(super) fn headers(outgoing: &Outgoing, stream: Option<&str>) -> Result<HeaderMap, PublishError> {
    let mut headers = HeaderMap::new();
    for (name, value) in &outgoing.headers {
        let (name, value) = header(name, value).map_err(PublishError::reject)?;
        headers.insert(name, value);
    }
    for (name, value) in &outgoing.attributes {
        headers.insert(attribute(name), encoded(value));
    }
    // A `Content-Type` of a CloudEvent tells readers that the whole event is in the body. In binary mode the type of the body is an
    // attribute like all others, so that the two cannot be confused.
    match outgoing.attributes.is_empty() {
        true => headers.insert("Content-Type", encoded_type(&outgoing.content_type)?),
        false => headers.insert(attribute("datacontenttype"), encoded(&outgoing.content_type)),
    }
    headers.insert(NATS_MESSAGE_ID, outgoing.id.to_string());
    if let Some(stream) = stream {
        headers.insert(NATS_EXPECTED_STREAM, stream);
    }
    Ok(headers)
}

/// The header name of an attribute. The names that every message has are static.
fn attribute(name: &str) -> HeaderName {
    HeaderName::from_static(match name {
        "specversion" => "ce-specversion",
        "id" => "ce-id",
        "source" => "ce-source",
        "type" => "ce-type",
        "time" => "ce-time",
        "datacontenttype" => "ce-datacontenttype",
        name => return format!("ce-{name}").into_header_name(),
    })
}

/// A value, percent-encoded where necessary. Most values need no encoding.
fn encoded(value: &str) -> String {
    let is_plain = value.bytes().fold(true, |is_plain, byte| is_plain & is_plain_byte(byte));
    if is_plain { value.to_owned() } else { utf8_percent_encode(value, ENCODED).to_string() }
}

/// Whether a byte needs no encoding. Branchless, so that many bytes are tested at a time.
const fn is_plain_byte(byte: u8) -> bool {
    byte > b' ' && byte < 0x7f && byte != b'"' && byte != b'%'
}

fn encoded_type(content_type: &str) -> Result<HeaderValue, PublishError> {
    Ok(header("content-type", content_type).map_err(PublishError::reject)?.1)
}

/// A header with its own name and value. Headers that would not arrive unchanged are rejected.
fn header(name: &str, value: &str) -> Result<(HeaderName, HeaderValue), String> {
    // They are instructions to the server, for example to replace all messages of a subject.
    if name.len() >= 5 && name.as_bytes()[..5].eq_ignore_ascii_case(b"nats-") {
        return Err(format!("header {name:?} is reserved for the server; choose another name"));
    }
    if value.contains(char::is_control) {
        return Err(format!("header {name:?} contains a control character, which NATS cannot carry"));
    }
    if value.trim() != value {
        return Err(format!("header {name:?} begins or ends with a blank, which NATS strips"));
    }
    let name = HeaderName::from_str(name).map_err(|error| format!("header {name:?}: {error}"))?;
    let value = HeaderValue::from_str(value).map_err(|error| format!("header {name:?}: {error}"))?;
    Ok((name, value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use postrider_core::{Format, Message, MessageId};
    use std::time::SystemTime;

    fn order(destination: &str, format: Format) -> Outgoing {
        let message = Message::builder("orders").event_type("order.placed").key("ä 17").json(&17);
        let now = SystemTime::now();
        let message = message.build().unwrap();
        Outgoing::write(&message, MessageId::at(now), now, "/shop", destination.to_owned(), format).unwrap()
    }

    #[test]
    fn check_subject_rejects_invalid_and_reserved_subjects() {
        for subject in
            ["", ".", "a.", ".a", "a..b", "a b", "a\tb", "a\nb", "a.*", "a.>", ">", "a*b", "$JS.API.INFO"]
        {
            assert!(check_subject(subject).is_err(), "{subject:?}");
        }
        assert!(check_subject("_INBOX.a").is_err());
        assert!(check_subject(&"s".repeat(MAX_SUBJECT_BYTES + 1)).is_err());
        for subject in ["a", "orders.placed", "größe.€", "a-b_c.d/e", &"s".repeat(MAX_SUBJECT_BYTES)] {
            check_subject(subject).unwrap();
        }
    }

    #[test]
    fn attributes_are_percent_encoded() {
        let mut outgoing = order("orders", Format::Binary);
        outgoing.attributes = vec![("subject", "Euro € 😀 \"%\"".into())];
        let headers = headers(&outgoing, None).unwrap();
        let headers = format!("{headers:?}");
        assert!(headers.contains("Euro%20%E2%82%AC%20%F0%9F%98%80%20%22%25%22"), "{headers}");
    }

    #[test]
    fn plain_byte_test_matches_percent_encoding_set() {
        for byte in 0..=u8::MAX {
            let is_kept = byte.is_ascii()
                && utf8_percent_encode(char::from(byte).encode_utf8(&mut [0; 2]), ENCODED)
                    .eq([char::from(byte).to_string()]);
            assert_eq!(is_plain_byte(byte), is_kept, "{byte}");
        }
    }

    #[test]
    fn headers_that_nats_would_change_are_rejected() {
        for (name, value) in [
            ("nats-rollup", "all"),
            ("Nats-Msg-Id", "1"),
            ("a", " b"),
            ("a", "b "),
            ("a", "b\nc"),
            ("a", "b\rc"),
            ("a b", "c"),
            ("a:b", "c"),
        ] {
            let mut outgoing = order("orders", Format::Plain);
            outgoing.headers.push((name.to_owned(), value.to_owned()));
            let error = headers(&outgoing, None).unwrap_err();
            assert!(matches!(error, PublishError::Reject { .. }), "{name}: {value}: {error}");
        }
    }
}
