//! A message in the words of AMQP 0-9-1.
//!
//! There is no official binding of CloudEvents to AMQP 0-9-1. Attributes are headers with the prefix `ce-`, as Knative's broker
//! for RabbitMQ writes them; other prefixes can be chosen.

use super::address::{Address, short};
use lapin::{
    BasicProperties,
    types::{AMQPValue, FieldTable, ShortString},
};
use postrider_core::{Outgoing, PublishError};
use std::time::SystemTime;

/// Written to disk by queues that are durable.
const PERSISTENT: u8 = 2;
/// What a header frame takes besides the properties: its own frame, class, weight, body size and flags.
const HEADER_FRAME_BYTES: usize = 7 + 1 + 2 + 2 + 8 + 2;

/// A message that is ready to be sent.
#[derive(Debug)]
pub(super) struct Parcel<'a> {
    /// Its place in the batch.
    pub(super) place: usize,
    pub(super) outgoing: &'a Outgoing,
    pub(super) id: ShortString,
    pub(super) address: Address,
    pub(super) properties: BasicProperties,
}

impl<'a> Parcel<'a> {
    pub(super) fn pack(place: usize, outgoing: &'a Outgoing, prefix: &str) -> Result<Self, PublishError> {
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
        Ok(Self { place, outgoing, id, address, properties })
    }

    /// All that is said about a message has to fit into one frame. What does not would cost the connection, and with it the answers
    /// of all others.
    pub(super) fn fits(&self, frame_bytes: usize) -> Result<(), PublishError> {
        let of = |text: &Option<ShortString>| text.as_ref().map_or(0, |text| 1 + text.as_str().len());
        let properties = &self.properties;
        let texts = [properties.content_type(), properties.correlation_id(), properties.message_id()];
        let texts: usize = texts.into_iter().chain([properties.kind()]).map(of).sum();
        let headers = properties.headers().iter().flat_map(FieldTable::inner);
        let headers = headers.map(|(name, value)| {
            let value = if let AMQPValue::LongString(text) = value { text.as_bytes().len() } else { 0 };
            1 + name.as_str().len() + 1 + 4 + value
        });
        // A table has a length, the delivery mode is a byte, and a timestamp eight.
        let bytes = HEADER_FRAME_BYTES + texts + 4 + headers.sum::<usize>() + 1 + 8;
        if bytes > frame_bytes {
            return Err(PublishError::reject(format!(
                "its headers take {bytes} bytes, and the broker takes {frame_bytes} in one frame (`frame_max`): send less in headers"
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
        let key = short("name of a header", &name)?;
        if table.contains_key(name.as_str()) {
            return Err(PublishError::reject(format!(
                "the header {name:?} is also the name of an attribute: choose another prefix, or another name"
            )));
        }
        table.insert(key, AMQPValue::LongString(value.into()));
    }
    Ok(table)
}

/// AMQP counts in whole seconds.
fn seconds(at: SystemTime) -> u64 {
    at.duration_since(SystemTime::UNIX_EPOCH).map(|since| since.as_secs()).unwrap_or_default()
}
