//! Encodes a message for AMQP 0-9-1.
//!
//! There is no official CloudEvents binding for AMQP 0-9-1. Attributes are headers with the prefix `ce-`, as Knative's broker
//! for RabbitMQ writes them; the prefix is configurable.

use super::address::{Address, short};
use lapin::{
    BasicProperties,
    types::{AMQPValue, FieldTable, ShortString},
};
use postrider_core::{Outgoing, PublishError};
use std::time::SystemTime;

/// Delivery mode: durable queues write the message to disk.
const PERSISTENT: u8 = 2;
/// Size of a content header frame without the properties: frame, class, weight, body size and flags.
const HEADER_FRAME_BYTES: usize = 7 + 1 + 2 + 2 + 8 + 2;

/// An encoded message, ready to be published.
#[derive(Debug)]
pub(super) struct Publication<'a> {
    /// Its index in the batch.
    pub(super) index: usize,
    pub(super) outgoing: &'a Outgoing,
    pub(super) id: ShortString,
    pub(super) address: Address,
    pub(super) properties: BasicProperties,
}

impl<'a> Publication<'a> {
    pub(super) fn encode(index: usize, outgoing: &'a Outgoing, prefix: &str) -> Result<Self, PublishError> {
        let address = Address::parse(&outgoing.destination)?;
        let id = short("id", &outgoing.id.to_string())?;
        let mut properties = BasicProperties::default()
            .with_message_id(id.clone())
            .with_delivery_mode(PERSISTENT)
            .with_content_type(short("content type", &outgoing.content_type)?)
            .with_timestamp(seconds(outgoing.staged_at))
            .with_headers(headers(outgoing, prefix)?);
        if let Some(event_type) = &outgoing.event_type {
            properties = properties.with_type(short("type", event_type.as_str())?);
        }
        if let Some(correlation_id) = &outgoing.correlation_id {
            properties = properties.with_correlation_id(short("correlation id", correlation_id)?);
        }
        Ok(Self { index, outgoing, id, address, properties })
    }

    /// The properties of a message must fit into one frame. A larger header frame would end the connection, and with it the confirms of
    /// all other messages.
    pub(super) fn check_frame_size(&self, frame_bytes: usize) -> Result<(), PublishError> {
        let length = |text: &Option<ShortString>| text.as_ref().map_or(0, |text| 1 + text.as_str().len());
        let properties = &self.properties;
        let texts = [properties.content_type(), properties.correlation_id(), properties.message_id()];
        let texts: usize = texts.into_iter().chain([properties.kind()]).map(length).sum();
        let headers = properties.headers().iter().flat_map(FieldTable::inner);
        let headers = headers.map(|(name, value)| {
            let value = if let AMQPValue::LongString(text) = value { text.as_bytes().len() } else { 0 };
            1 + name.as_str().len() + 1 + 4 + value
        });
        // A table has a length, the delivery mode is a byte, and a timestamp eight.
        let bytes = HEADER_FRAME_BYTES + texts + 4 + headers.sum::<usize>() + 1 + 8;
        if bytes > frame_bytes {
            return Err(PublishError::reject(format!(
                "the headers take {bytes} bytes, and the broker allows {frame_bytes} in one frame (`frame_max`); send smaller headers"
            )));
        }
        Ok(())
    }
}

fn headers(outgoing: &Outgoing, prefix: &str) -> Result<FieldTable, PublishError> {
    let mut table = FieldTable::default();
    let own = outgoing.headers.iter().map(|(name, value)| (name.clone(), value.as_str()));
    let attributes =
        outgoing.attributes.iter().map(|(name, value)| (format!("{prefix}{name}"), value.as_str()));
    for (name, value) in own.chain(attributes) {
        let key = short("header name", &name)?;
        if table.contains_key(name.as_str()) {
            return Err(PublishError::reject(format!(
                "the header {name:?} has the name of a CloudEvents attribute; choose another header name or another prefix"
            )));
        }
        table.insert(key, AMQPValue::LongString(value.into()));
    }
    Ok(table)
}

/// AMQP timestamps have whole seconds.
fn seconds(at: SystemTime) -> u64 {
    at.duration_since(SystemTime::UNIX_EPOCH).map(|since| since.as_secs()).unwrap_or_default()
}
