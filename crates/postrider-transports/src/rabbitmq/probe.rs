//! Reads the properties of an exchange or a queue by AMQP.
//!
//! AMQP has no query for them. But when a client declares something that exists with a different property, the broker refuses and names
//! the property that differs and its current value. So a declaration with a value that nothing has is a query: it changes nothing, and
//! each refusal reveals one more property.
//!
//! This needs the `configure` permission. Settings made by a *policy* are not among the arguments and are not visible.

use super::{connection::BrokerConnection, error::soft_error};
use lapin::{
    Channel, Error, ExchangeKind,
    options::{ExchangeDeclareOptions, ExchangeDeleteOptions, QueueDeclareOptions, QueueDeleteOptions},
    protocol::AMQPSoftError,
    types::{AMQPValue, FieldTable, ShortString},
};
use std::collections::BTreeMap;

/// More than the number of properties: a bound for brokers whose replies repeat.
const MAX_PROBES: usize = 24;
/// A value that no declaration uses.
const UNUSED_VALUE: i64 = 424_242_424_243;
const MAX_LENGTH: &str = "x-max-length";
const MAX_LENGTH_BYTES: &str = "x-max-length-bytes";
const OVERFLOW: &str = "x-overflow";
const MAX_AGE: &str = "x-max-age";
const QUEUE_TYPE: &str = "x-queue-type";
const DELIVERY_LIMIT: &str = "x-delivery-limit";
const DEAD_LETTER_EXCHANGE: &str = "x-dead-letter-exchange";
pub(super) const MESSAGE_TTL: &str = "x-message-ttl";
const ALTERNATE: &str = "alternate-exchange";

/// The result of probing an exchange or a queue.
#[derive(Debug)]
pub(super) enum ProbeResult<T> {
    /// Its properties.
    Found(T),
    /// It does not exist.
    Missing,
    /// It is exclusive to another connection.
    Exclusive,
    /// The broker does not show its properties, for this reason.
    NotVisible(String),
}

#[derive(Debug)]
pub(super) struct Exchange {
    pub(super) is_durable: bool,
    pub(super) is_auto_delete: bool,
    pub(super) is_internal: bool,
    /// The exchange for unroutable messages.
    pub(super) alternate: Option<String>,
}

#[derive(Debug)]
pub(super) struct Queue {
    pub(super) is_durable: bool,
    pub(super) is_auto_delete: bool,
    /// The relevant arguments of its declaration.
    pub(super) arguments: BTreeMap<String, String>,
}

impl Queue {
    /// Whether it is a quorum queue.
    pub(super) fn is_quorum(&self) -> bool {
        self.has_type("quorum")
    }

    /// Whether it is a stream, which keeps consumed messages.
    pub(super) fn is_stream(&self) -> bool {
        self.has_type("stream")
    }

    /// The dead-letter exchange, for rejected messages.
    pub(super) fn dead_letter_exchange(&self) -> Option<&str> {
        self.arguments.get(DEAD_LETTER_EXCHANGE).map(String::as_str)
    }

    /// The number of redeliveries after which a message is dead-lettered.
    pub(super) fn delivery_limit(&self) -> Option<&str> {
        self.arguments.get(DELIVERY_LIMIT).map(String::as_str)
    }

    fn has_type(&self, wanted: &str) -> bool {
        self.arguments.get(QUEUE_TYPE).is_some_and(|known| known == wanted)
    }

    /// Its length limit, if it drops its oldest messages above it.
    pub(super) fn drop_head_limit(&self) -> Option<String> {
        let limits = [MAX_LENGTH, MAX_LENGTH_BYTES].into_iter();
        let limits: Vec<_> =
            limits.filter_map(|name| Some(format!("{name} = {}", self.arguments.get(name)?))).collect();
        let rejects =
            self.arguments.get(OVERFLOW).is_some_and(|overflow| overflow.starts_with("reject-publish"));
        (!limits.is_empty() && !rejects).then(|| limits.join(" and "))
    }
}

/// A property that differs from the declaration.
#[derive(Debug, PartialEq, Eq)]
struct Difference {
    argument: String,
    /// Its current value; `None` if it is not set.
    current: Option<Value>,
}

/// A property's value. The broker often omits the type.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Value {
    text: String,
    is_text: bool,
}

impl Value {
    fn is_true(this: Option<Self>) -> bool {
        this.is_some_and(|value| value.text == "true")
    }

    fn to_amqp(&self) -> AMQPValue {
        let text = || AMQPValue::LongString(self.text.as_str().into());
        match self.text.as_str() {
            _ if self.is_text => text(),
            "true" => AMQPValue::Boolean(true),
            "false" => AMQPValue::Boolean(false),
            number => number.parse().map_or_else(|_| text(), AMQPValue::LongLongInt),
        }
    }
}

pub(super) async fn exchange(
    connection: &BrokerConnection,
    name: &ShortString,
) -> lapin::Result<ProbeResult<Exchange>> {
    let passive = ExchangeDeclareOptions { passive: true, ..ExchangeDeclareOptions::default() };
    let channel = connection.open_channel().await?;
    let declared =
        channel.exchange_declare(name.clone(), ExchangeKind::Direct, passive, FieldTable::default());
    if let Err(error) = declared.await {
        return classify(error);
    }
    let mut kind = ExchangeKind::Direct;
    let mut options = ExchangeDeclareOptions { durable: true, ..ExchangeDeclareOptions::default() };
    let unused = format!("postrider-probe-{UNUSED_VALUE}");
    for _ in 0..MAX_PROBES {
        let channel = connection.open_channel().await?;
        let arguments = table([(ALTERNATE, AMQPValue::LongString(unused.as_str().into()))]);
        let Err(error) = channel.exchange_declare(name.clone(), kind.clone(), options, arguments).await
        else {
            return delete_created(&channel, name).await;
        };
        let Some(Difference { argument, current }) = difference(&error) else { return classify(error) };
        match argument.as_str() {
            "type" => kind = ExchangeKind::Custom(current.map(|value| value.text).unwrap_or_default()),
            "durable" => options.durable = Value::is_true(current),
            "auto_delete" => options.auto_delete = Value::is_true(current),
            "internal" => options.internal = Value::is_true(current),
            ALTERNATE => {
                return Ok(ProbeResult::Found(Exchange {
                    is_durable: options.durable,
                    is_auto_delete: options.auto_delete,
                    is_internal: options.internal,
                    alternate: current.map(|value| value.text),
                }));
            }
            _ => return classify(error),
        }
    }
    Ok(ProbeResult::NotVisible("its replies repeat".to_owned()))
}

/// Nothing has the declared argument: the exchange was deleted a moment ago, and the probe created a new one.
async fn delete_created(channel: &Channel, name: &ShortString) -> lapin::Result<ProbeResult<Exchange>> {
    let unused = ExchangeDeleteOptions { if_unused: true, ..ExchangeDeleteOptions::default() };
    channel.exchange_delete(name.clone(), unused).await?;
    Ok(ProbeResult::Missing)
}

pub(super) async fn queue(
    connection: &BrokerConnection,
    name: &ShortString,
) -> lapin::Result<ProbeResult<Queue>> {
    let passive = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
    let declared =
        connection.open_channel().await?.queue_declare(name.clone(), passive, FieldTable::default()).await;
    if let Err(error) = declared {
        return classify(error);
    }
    let mut options = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
    let mut known: BTreeMap<String, Option<Value>> = BTreeMap::new();
    for _ in 0..MAX_PROBES {
        let Some(probe) = next_probe(&known) else {
            let arguments = known.into_iter().filter_map(|(name, value)| Some((name, value?.text))).collect();
            let QueueDeclareOptions { durable, auto_delete, .. } = options;
            return Ok(ProbeResult::Found(Queue {
                is_durable: durable,
                is_auto_delete: auto_delete,
                arguments,
            }));
        };
        let set = known.iter().filter_map(|(name, value)| Some((name.as_str(), value.as_ref()?.to_amqp())));
        let arguments = table(set.chain([probe.clone()]));
        let channel = connection.open_channel().await?;
        let Err(error) = channel.queue_declare(name.clone(), options, arguments).await else {
            if [MAX_LENGTH, MAX_LENGTH_BYTES].contains(&probe.0) {
                // Nothing has that limit: the queue was deleted a moment ago, and the probe created a new one.
                let unused =
                    QueueDeleteOptions { if_unused: true, if_empty: true, ..QueueDeleteOptions::default() };
                channel.queue_delete(name.clone(), unused).await?;
                return Ok(ProbeResult::Missing);
            }
            // The queue was declared with this value, or its type has no such argument.
            let text = if let AMQPValue::LongString(text) = &probe.1 { Some(text.to_string()) } else { None };
            let value =
                text.filter(|_| probe.0 != DEAD_LETTER_EXCHANGE).map(|text| Value { text, is_text: true });
            known.insert(probe.0.to_owned(), value);
            continue;
        };
        let Some(Difference { argument, current }) = difference(&error) else { return classify(error) };
        match argument.as_str() {
            "durable" => options.durable = Value::is_true(current),
            "auto_delete" => options.auto_delete = Value::is_true(current),
            _ => drop(known.insert(argument, current)),
        }
    }
    Ok(ProbeResult::NotVisible("its replies repeat".to_owned()))
}

/// The next argument to probe. Arguments that the broker compares before this one reveal themselves; arguments that the queue's type
/// does not have are skipped, because the broker ignores them.
fn next_probe(known: &BTreeMap<String, Option<Value>>) -> Option<(&'static str, AMQPValue)> {
    let is_set = |name: &str| known.get(name).is_some_and(Option::is_some);
    let kind = known.get(QUEUE_TYPE).and_then(|kind| Some(kind.as_ref()?.text.as_str()));
    let is_stream = kind == Some("stream");
    let number = || AMQPValue::LongLongInt(UNUSED_VALUE);
    let text = |text: &str| AMQPValue::LongString(text.into());
    let probes = [
        (!is_stream, MAX_LENGTH, number()),
        (true, MAX_LENGTH_BYTES, number()),
        (!is_stream, MESSAGE_TTL, number()),
        (!is_stream, DEAD_LETTER_EXCHANGE, text(&format!("postrider-probe-{UNUSED_VALUE}"))),
        (true, QUEUE_TYPE, text("classic")),
        (is_stream, MAX_AGE, text("42Y")),
        (kind == Some("quorum"), DELIVERY_LIMIT, number()),
        (!is_stream && (is_set(MAX_LENGTH) || is_set(MAX_LENGTH_BYTES)), OVERFLOW, text("drop-head")),
    ];
    let next = probes.into_iter().find(|(applies, name, _)| *applies && !known.contains_key(*name));
    next.map(|(_, name, value)| (name, value))
}

/// The result of a refused probe. An error when the connection has ended.
fn classify<T>(error: Error) -> lapin::Result<ProbeResult<T>> {
    match soft_error(&error) {
        None => Err(error),
        Some(AMQPSoftError::NOTFOUND) => Ok(ProbeResult::Missing),
        Some(AMQPSoftError::RESOURCELOCKED) => Ok(ProbeResult::Exclusive),
        Some(_) => Ok(ProbeResult::NotVisible(error.to_string())),
    }
}

/// Parses `inequivalent arg 'durable' for exchange 'shop' in vhost '/': received 'true' but current is 'false'`.
fn difference(error: &Error) -> Option<Difference> {
    soft_error(error).filter(|reason| matches!(reason, AMQPSoftError::PRECONDITIONFAILED))?;
    parse(&error.to_string())
}

fn parse(text: &str) -> Option<Difference> {
    let (_, rest) = text.split_once("inequivalent arg '")?;
    let (argument, rest) = rest.split_once('\'')?;
    let (_, current) = rest.rsplit_once(" but current is ")?;
    let current = match current.trim() {
        "none" => None,
        value => {
            let quoted = value.strip_prefix("the value ").unwrap_or(value);
            let (text, kind) = quoted
                .strip_prefix('\'')?
                .rsplit_once("' of type ")
                .map_or_else(|| Some((quoted.strip_prefix('\'')?.strip_suffix('\'')?, "")), Some)?;
            Some(Value { text: text.to_owned(), is_text: kind == "'longstr'" })
        }
    };
    Some(Difference { argument: argument.to_owned(), current })
}

fn table<'a>(arguments: impl IntoIterator<Item = (&'a str, AMQPValue)>) -> FieldTable {
    let mut table = FieldTable::default();
    for (name, value) in arguments {
        table.insert(name.into(), value);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Option<(String, Option<String>)> {
        parse(text).map(|difference| (difference.argument, difference.current.map(|value| value.text)))
    }

    #[test]
    fn declare_error_names_differing_argument_and_current_value() {
        let some =
            |argument: &str, value: Option<&str>| Some((argument.to_owned(), value.map(str::to_owned)));
        let start = "PRECONDITION_FAILED - inequivalent arg";
        assert_eq!(
            parsed(&format!(
                "{start} 'durable' for exchange 'a' in vhost '/': received 'true' but current is 'false'"
            )),
            some("durable", Some("false"))
        );
        assert_eq!(
            parsed(&format!(
                "{start} 'x-max-length' for queue 'q' in vhost '/': received the value '9' of type 'long' but current is none"
            )),
            some("x-max-length", None)
        );
        assert_eq!(
            parsed(&format!(
                "{start} 'alternate-exchange' for exchange 'a' in vhost '/': received none but current is the value 'spare' of type 'longstr'"
            )),
            some("alternate-exchange", Some("spare"))
        );
        assert_eq!(parsed("PRECONDITION_FAILED - something else"), None);
    }
}
