//! A message as Kafka carries it: topic, key and headers.

use postrider_core::{Incoming, Outgoing, PublishError};
use rdkafka::message::{Header, Headers, Message, OwnedHeaders};

/// What Kafka allows in the name of a topic.
const NAME_BYTES: usize = 249;
const CONTENT_TYPE: &str = "content-type";

/// What is wrong with the name of a topic.
pub(super) fn check_topic(topic: &str) -> Result<(), String> {
    check_name(topic, "a topic")
}

/// What is wrong with a name that Kafka treats as it treats those of topics.
pub(super) fn check_name(name: &str, of: &str) -> Result<(), String> {
    let is_legal = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    if name.is_empty() || name.len() > NAME_BYTES || matches!(name, "." | "..") || !name.bytes().all(is_legal)
    {
        let start: String = name.chars().take(64).collect();
        return Err(format!(
            "{start:?} is not {of}: 1 to {NAME_BYTES} letters, digits, dots, hyphens and underscores"
        ));
    }
    Ok(())
}

/// Attributes under the names of the binding, everything else under its own.
pub(super) fn headers(outgoing: &Outgoing) -> Result<OwnedHeaders, PublishError> {
    let names: Vec<String> = outgoing.attributes.iter().map(|(name, _)| format!("ce_{name}")).collect();
    let mut headers = OwnedHeaders::new_with_capacity(1 + names.len() + outgoing.headers.len());
    for (name, (_, value)) in names.iter().zip(&outgoing.attributes) {
        headers = headers.insert(Header { key: name, value: Some(value.as_str()) });
    }
    headers = headers.insert(Header { key: CONTENT_TYPE, value: Some(outgoing.content_type.as_str()) });
    for (name, value) in &outgoing.headers {
        // Kafka would carry both, and readers would see one of them.
        let is = |taken: &str| taken.eq_ignore_ascii_case(name);
        if is(CONTENT_TYPE) || names.iter().any(|taken| is(taken)) {
            return Err(PublishError::reject(format!(
                "the header {name:?} is also the name of what Postrider writes: choose another name"
            )));
        }
        headers = headers.insert(Header { key: name, value: Some(value) });
    }
    Ok(headers)
}

/// The binding undone, of whatever somebody wrote. What is there twice counts once, and a key that is no text stays outside.
pub(super) fn read(message: &impl Message) -> Incoming {
    let mut incoming = Incoming::new(message.topic(), message.payload().unwrap_or_default().to_vec());
    incoming.key = message.key().and_then(|key| String::from_utf8(key.to_vec()).ok());
    for header in message.headers().into_iter().flat_map(Headers::iter) {
        let Some(value) = header.value else { continue };
        let value = String::from_utf8_lossy(value).into_owned();
        if header.key.eq_ignore_ascii_case(CONTENT_TYPE) {
            incoming.content_type.get_or_insert(value);
        } else if let Some(attribute) = header.key.strip_prefix("ce_") {
            incoming.attributes.push((attribute.to_owned(), value));
        } else {
            incoming.headers.push((header.key.to_owned(), value));
        }
    }
    incoming
}

#[cfg(test)]
mod tests {
    use super::*;
    use postrider_core::{Format, Message, MessageId};
    use rdkafka::{Timestamp, message::OwnedMessage};
    use std::time::SystemTime;

    fn order(format: Format) -> Outgoing {
        let message =
            Message::builder("orders").event_type("order.placed").key("17").header("color", "ä€").json(&17);
        let now = SystemTime::now();
        let message = message.build().unwrap();
        Outgoing::write(&message, MessageId::at(now), now, "/shop", "orders".to_owned(), format).unwrap()
    }

    fn written(outgoing: &Outgoing) -> Vec<(String, String)> {
        let headers = headers(outgoing).unwrap();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        headers.iter().map(|header| (header.key.to_owned(), text(header.value.unwrap()))).collect()
    }

    #[test]
    fn attributes_have_the_prefix_of_the_binding_and_all_else_its_own_name() {
        let binary = written(&order(Format::Binary));
        let has = |name: &str, value: &str| binary.contains(&(name.to_owned(), value.to_owned()));
        assert!(has("ce_specversion", "1.0") && has("ce_type", "order.placed"), "{binary:?}");
        assert!(has("content-type", "application/json") && has("color", "ä€"), "{binary:?}");
        assert!(
            !binary.iter().any(|(name, _)| name == "ce_datacontenttype"),
            "it is the header content-type"
        );
        let structured = written(&order(Format::Structured));
        assert_eq!(structured[0].1, "application/cloudevents+json; charset=utf-8");
    }

    #[test]
    fn what_others_wrote_is_read_without_complaint() {
        let mut headers = OwnedHeaders::new();
        for (key, value) in
            [("ce_type", Some(&b"t"[..])), ("Content-Type", Some(b"a/b")), ("x", Some(b"\xff")), ("y", None)]
        {
            headers = headers.insert(Header { key, value });
        }
        let owned = |payload: Option<&[u8]>, key: Option<&[u8]>, headers| {
            let (payload, key) = (payload.map(<[u8]>::to_vec), key.map(<[u8]>::to_vec));
            OwnedMessage::new(payload, key, "orders".to_owned(), Timestamp::NotAvailable, 0, 0, headers)
        };
        let read_back = read(&owned(Some(b"\xff"), Some(b"\xff"), Some(headers)));
        assert_eq!((&read_back.body[..], read_back.key), (&b"\xff"[..], None));
        assert_eq!(read_back.content_type.as_deref(), Some("a/b"));
        assert_eq!(read_back.attributes, [("type".to_owned(), "t".to_owned())]);
        assert_eq!(read_back.headers, [("x".to_owned(), "\u{fffd}".to_owned())]);
        assert_eq!(read(&owned(None, None, None)), Incoming::new("orders", ""));
    }

    #[test]
    fn a_header_with_a_name_of_ours_is_refused_for_good() {
        for name in ["content-type", "Content-Type", "ce_id"] {
            let mut outgoing = order(Format::Binary);
            outgoing.headers.push((name.to_owned(), "x".to_owned()));
            assert!(matches!(headers(&outgoing), Err(PublishError::Reject { .. })), "{name}");
        }
    }

    #[test]
    fn names_that_no_topic_can_have_are_refused() {
        for topic in ["", ".", "..", "a b", "a/b", "größe", "a\0", &"t".repeat(NAME_BYTES + 1)] {
            assert!(check_topic(topic).is_err(), "{topic:?}");
        }
        for topic in ["orders", "shop.order_placed-1", &"t".repeat(NAME_BYTES)] {
            check_topic(topic).unwrap();
        }
    }
}
