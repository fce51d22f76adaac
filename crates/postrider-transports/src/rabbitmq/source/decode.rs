//! Decodes a delivery.

use lapin::{
    message::Delivery,
    types::{AMQPValue, FieldTable},
};
use postrider_core::Incoming;

/// The default prefix, and those of the binding for AMQP 1.0.
const PREFIXES: [&str; 3] = ["ce-", "cloudEvents:", "cloudEvents_"];
/// Failed deliveries, and since RabbitMQ 4.3 how often a consumer acquired the message.
const COUNT_HEADERS: [&str; 2] = ["x-delivery-count", "x-acquired-count"];

/// Decodes the deliveries of a queue.
#[derive(Debug)]
pub(super) struct Decoder {
    origin: String,
    prefixes: Vec<String>,
}

impl Decoder {
    pub(super) fn new(origin: String, prefix: Option<String>) -> Self {
        Self { origin, prefixes: prefix.into_iter().chain(PREFIXES.map(str::to_owned)).collect() }
    }

    pub(super) fn decode(&self, delivery: Delivery) -> Incoming {
        let mut incoming = Incoming::new(self.origin.as_str(), delivery.data);
        let properties = &delivery.properties;
        incoming.id = properties.message_id().as_ref().map(ToString::to_string);
        incoming.content_type = properties.content_type().as_ref().map(ToString::to_string);
        for (name, value) in properties.headers().iter().flat_map(FieldTable::inner) {
            let name = name.as_str();
            let Some(value) = text(value).filter(|_| !COUNT_HEADERS.contains(&name)) else { continue };
            match self.prefixes.iter().find_map(|prefix| name.strip_prefix(prefix.as_str())) {
                Some(attribute) => incoming.attributes.push((attribute.to_owned(), value)),
                None => incoming.headers.push((name.to_owned(), value)),
            }
        }
        incoming
    }
}

/// How often a quorum queue has delivered the message, this delivery included. The queue sets the header from the second delivery on; on
/// the first delivery a header of this name is the sender's.
pub(super) fn deliveries(delivery: &Delivery) -> Option<u32> {
    if !delivery.redelivered {
        return Some(1);
    }
    let headers = delivery.properties.headers().as_ref()?.inner();
    let before = COUNT_HEADERS.iter().filter_map(|count| match headers.get(*count)? {
        AMQPValue::LongLongInt(count) => u32::try_from(*count).ok(),
        AMQPValue::LongInt(count) => u32::try_from(*count).ok(),
        AMQPValue::LongUInt(count) => Some(*count),
        AMQPValue::ShortInt(count) => u32::try_from(*count).ok(),
        AMQPValue::ShortUInt(count) => Some((*count).into()),
        AMQPValue::ShortShortInt(count) => u32::try_from(*count).ok(),
        AMQPValue::ShortShortUInt(count) => Some((*count).into()),
        _ => None,
    });
    Some(before.max()?.saturating_add(1))
}

/// A header as text. Values that are not text or numbers, such as the tables that the broker adds, are omitted.
fn text(value: &AMQPValue) -> Option<String> {
    Some(match value {
        AMQPValue::LongString(text) => String::from_utf8_lossy(text.as_bytes()).into_owned(),
        AMQPValue::ShortString(text) => text.to_string(),
        AMQPValue::Boolean(value) => value.to_string(),
        AMQPValue::ShortShortInt(value) => value.to_string(),
        AMQPValue::ShortShortUInt(value) => value.to_string(),
        AMQPValue::ShortInt(value) => value.to_string(),
        AMQPValue::ShortUInt(value) => value.to_string(),
        AMQPValue::LongInt(value) => value.to_string(),
        AMQPValue::LongUInt(value) => value.to_string(),
        AMQPValue::LongLongInt(value) => value.to_string(),
        AMQPValue::Float(value) => value.to_string(),
        AMQPValue::Double(value) => value.to_string(),
        _ => return None,
    })
}
