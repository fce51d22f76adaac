//! Decodes received messages: the reverse of the transport's wire format.
//!
//! Other senders use queues, too. Attributes that do not follow the wire format stay as they are, and no message is refused here.

use crate::aws::wire::{CONTENT_TYPE, ENCODING, EVENT, MORE};
use aws_sdk_sqs::types::{Message, MessageAttributeValue, MessageSystemAttributeName as System};
use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use percent_encoding::percent_decode_str;
use postrider_core::Incoming;
use sha2::{Digest, Sha256};
use std::{
    collections::{BTreeMap, HashMap},
    fmt::Write,
};

/// The decoded message.
pub(super) fn incoming(origin: &str, message: &Message) -> Incoming {
    let body = message.body().unwrap_or_default();
    let mut named = texts(message.message_attributes());
    if let Some(more) =
        named.get(MORE).and_then(|text| serde_json::from_str::<BTreeMap<String, String>>(text).ok())
    {
        named.remove(MORE);
        named.extend(more);
    }
    let decoded = match named.get(ENCODING).map(String::as_str) {
        Some("empty") => Some(Bytes::new()),
        Some("base64") => STANDARD.decode(body).ok().map(Bytes::from),
        _ => None,
    };
    if decoded.is_some() {
        named.remove(ENCODING);
    }
    let mut incoming =
        Incoming::new(origin, decoded.unwrap_or_else(|| Bytes::copy_from_slice(body.as_bytes())));
    incoming.id = identity(message, body);
    incoming.key = group(message).map(|group| percent_decode_str(group).decode_utf8_lossy().into_owned());
    incoming.content_type = named.remove(CONTENT_TYPE);
    for (name, value) in named {
        match name.strip_prefix(EVENT) {
            Some(attribute) => incoming.attributes.push((attribute.to_owned(), value)),
            None => incoming.headers.push((name, value)),
        }
    }
    incoming
}

/// The message group id.
pub(super) fn group(message: &Message) -> Option<&str> {
    system(message, &System::MessageGroupId)
}

/// The number of deliveries, this one included.
pub(super) fn deliveries(message: &Message) -> Option<u32> {
    system(message, &System::ApproximateReceiveCount)?.parse().ok()
}

/// The identity of a message: the sender's deduplication id in FIFO, otherwise the message id of the service. A hash of the contents is
/// not an identity: a sender may send the same contents twice, and mean both.
fn identity(message: &Message, body: &str) -> Option<String> {
    let chosen = system(message, &System::MessageDeduplicationId).filter(|id| *id != hash(body));
    chosen.or(message.message_id()).map(str::to_owned)
}

fn hash(body: &str) -> String {
    Sha256::digest(body.as_bytes()).iter().fold(String::new(), |mut hash, byte| {
        // Writing to a string cannot fail.
        write!(hash, "{byte:02x}").ok();
        hash
    })
}

fn system<'m>(message: &'m Message, name: &System) -> Option<&'m str> {
    message.attributes()?.get(name).map(String::as_str)
}

fn texts(attributes: Option<&HashMap<String, MessageAttributeValue>>) -> BTreeMap<String, String> {
    let text = |value: &MessageAttributeValue| match (value.string_value(), value.binary_value()) {
        (Some(text), _) => text.to_owned(),
        (None, Some(bytes)) => String::from_utf8_lossy(bytes.as_ref()).into_owned(),
        (None, None) => String::new(),
    };
    attributes.into_iter().flatten().map(|(name, value)| (name.clone(), text(value))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(body: &str, attributes: &[(&str, &str)]) -> aws_sdk_sqs::types::builders::MessageBuilder {
        attributes.iter().fold(Message::builder().body(body).message_id("m-1"), |message, (name, value)| {
            let value = MessageAttributeValue::builder().data_type("String").string_value(*value).build();
            message.message_attributes(*name, value.unwrap())
        })
    }

    fn read(body: &str, attributes: &[(&str, &str)]) -> Incoming {
        incoming("orders", &message(body, attributes).build())
    }

    #[test]
    fn incoming_keeps_attributes_of_other_senders() {
        let odd = read("%", &[(ENCODING, "base64"), (MORE, "[1]"), ("color", "blue")]);
        assert_eq!(odd.body, "%");
        let names: Vec<_> = odd.headers.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["color", ENCODING, MORE]);
        let bare = incoming("orders", &Message::builder().build());
        assert_eq!((bare.body.len(), bare.id), (0, None));
    }

    #[test]
    fn content_hash_is_not_the_identity() {
        let with = |id: &str| {
            let message = message("17", &[]).attributes(System::MessageDeduplicationId, id).build();
            incoming("orders.fifo", &message).id
        };
        assert_eq!(with("A-1").as_deref(), Some("A-1"));
        let of_contents = "4523540f1504cd17100c4835e85b7eefd49911580f8efff0599a8f283be6b9e3";
        assert_eq!(with(of_contents).as_deref(), Some("m-1"));
        assert_eq!(read("17", &[]).id.as_deref(), Some("m-1"));
    }
}
