//! What AMQP lets one see of an exchange or a queue.
//!
//! There is no question for it. But whoever declares something that exists, and says something else about it, is refused with the
//! argument that differs and what it is now. So a declaration with an argument that nothing has is a question: it changes nothing, and
//! its refusals tell one property after the other.
//!
//! It takes the right to configure. What a *policy* sets is not among the arguments, and is not seen.

use super::{batch::refusal, line::Line};
use lapin::{
    Channel, Error, ExchangeKind,
    options::{ExchangeDeclareOptions, ExchangeDeleteOptions, QueueDeclareOptions, QueueDeleteOptions},
    protocol::AMQPSoftError,
    types::{AMQPValue, FieldTable, ShortString},
};
use std::collections::BTreeMap;

/// More properties than anything has: an end for brokers that answer in circles.
const QUESTIONS: usize = 24;
/// A number that nobody chose.
const NOBODYS: i64 = 424_242_424_243;
const MAX_LENGTH: &str = "x-max-length";
const MAX_LENGTH_BYTES: &str = "x-max-length-bytes";
const OVERFLOW: &str = "x-overflow";
const MAX_AGE: &str = "x-max-age";
const QUEUE_TYPE: &str = "x-queue-type";
const DELIVERY_LIMIT: &str = "x-delivery-limit";
const DEAD_LETTERS: &str = "x-dead-letter-exchange";
pub(super) const MESSAGE_TTL: &str = "x-message-ttl";
const ALTERNATE: &str = "alternate-exchange";

/// What there is to see.
#[derive(Debug)]
pub(super) enum Seen<T> {
    /// This.
    Facts(T),
    /// It does not exist.
    Missing,
    /// It belongs to another connection alone.
    Exclusive,
    /// The broker does not say, for this reason.
    Hidden(String),
}

#[derive(Debug)]
pub(super) struct Exchange {
    pub(super) is_durable: bool,
    pub(super) is_auto_delete: bool,
    pub(super) is_internal: bool,
    /// Where it sends what no binding wants.
    pub(super) alternate: Option<String>,
}

#[derive(Debug)]
pub(super) struct Queue {
    pub(super) is_durable: bool,
    pub(super) is_auto_delete: bool,
    /// The arguments that it was declared with, as far as they matter.
    pub(super) arguments: BTreeMap<String, String>,
}

impl Queue {
    /// Whether it is a quorum queue.
    pub(super) fn is_quorum(&self) -> bool {
        self.has_type("quorum")
    }

    /// Whether it is a stream, which keeps what was read.
    pub(super) fn is_stream(&self) -> bool {
        self.has_type("stream")
    }

    /// Where it sends what is refused.
    pub(super) fn dead_letters(&self) -> Option<&str> {
        self.arguments.get(DEAD_LETTERS).map(String::as_str)
    }

    /// After how many failures it gives a message up.
    pub(super) fn delivery_limit(&self) -> Option<&str> {
        self.arguments.get(DELIVERY_LIMIT).map(String::as_str)
    }

    fn has_type(&self, wanted: &str) -> bool {
        self.arguments.get(QUEUE_TYPE).is_some_and(|known| known == wanted)
    }

    /// Its limit, where it makes room by dropping its oldest messages.
    pub(super) fn drops_above(&self) -> Option<String> {
        let limits = [MAX_LENGTH, MAX_LENGTH_BYTES].into_iter();
        let limits: Vec<_> =
            limits.filter_map(|name| Some(format!("{name} = {}", self.arguments.get(name)?))).collect();
        let rejects =
            self.arguments.get(OVERFLOW).is_some_and(|overflow| overflow.starts_with("reject-publish"));
        (!limits.is_empty() && !rejects).then(|| limits.join(" and "))
    }
}

/// An argument that differs from what was declared.
#[derive(Debug, PartialEq, Eq)]
struct Difference {
    argument: String,
    /// What it is; `None` where it is not set.
    current: Option<Value>,
}

/// The broker often leaves the type out.
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

pub(super) async fn exchange(line: &Line, name: &ShortString) -> lapin::Result<Seen<Exchange>> {
    let passive = ExchangeDeclareOptions { passive: true, ..ExchangeDeclareOptions::default() };
    let channel = line.ask().await?;
    let there = channel.exchange_declare(name.clone(), ExchangeKind::Direct, passive, FieldTable::default());
    if let Err(error) = there.await {
        return unseen(error);
    }
    let mut kind = ExchangeKind::Direct;
    let mut options = ExchangeDeclareOptions { durable: true, ..ExchangeDeclareOptions::default() };
    let nowhere = format!("postrider-nowhere-{NOBODYS}");
    for _ in 0..QUESTIONS {
        let channel = line.ask().await?;
        let arguments = table([(ALTERNATE, AMQPValue::LongString(nowhere.as_str().into()))]);
        let Err(error) = channel.exchange_declare(name.clone(), kind.clone(), options, arguments).await
        else {
            return forget(&channel, name).await;
        };
        let Some(Difference { argument, current }) = difference(&error) else { return unseen(error) };
        match argument.as_str() {
            "type" => kind = ExchangeKind::Custom(current.map(|value| value.text).unwrap_or_default()),
            "durable" => options.durable = Value::is_true(current),
            "auto_delete" => options.auto_delete = Value::is_true(current),
            "internal" => options.internal = Value::is_true(current),
            ALTERNATE => {
                return Ok(Seen::Facts(Exchange {
                    is_durable: options.durable,
                    is_auto_delete: options.auto_delete,
                    is_internal: options.internal,
                    alternate: current.map(|value| value.text),
                }));
            }
            _ => return unseen(error),
        }
    }
    Ok(Seen::Hidden("it answers in circles".to_owned()))
}

/// Nothing has the argument that was declared: the exchange was deleted a moment ago, and the question made a new one.
async fn forget(channel: &Channel, name: &ShortString) -> lapin::Result<Seen<Exchange>> {
    let unused = ExchangeDeleteOptions { if_unused: true, ..ExchangeDeleteOptions::default() };
    channel.exchange_delete(name.clone(), unused).await?;
    Ok(Seen::Missing)
}

pub(super) async fn queue(line: &Line, name: &ShortString) -> lapin::Result<Seen<Queue>> {
    let passive = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
    let there = line.ask().await?.queue_declare(name.clone(), passive, FieldTable::default()).await;
    if let Err(error) = there {
        return unseen(error);
    }
    let mut options = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
    let mut known: BTreeMap<String, Option<Value>> = BTreeMap::new();
    for _ in 0..QUESTIONS {
        let Some(asked) = next_question(&known) else {
            let arguments = known.into_iter().filter_map(|(name, value)| Some((name, value?.text))).collect();
            let QueueDeclareOptions { durable, auto_delete, .. } = options;
            return Ok(Seen::Facts(Queue { is_durable: durable, is_auto_delete: auto_delete, arguments }));
        };
        let set = known.iter().filter_map(|(name, value)| Some((name.as_str(), value.as_ref()?.to_amqp())));
        let arguments = table(set.chain([asked.clone()]));
        let channel = line.ask().await?;
        let Err(error) = channel.queue_declare(name.clone(), options, arguments).await else {
            if [MAX_LENGTH, MAX_LENGTH_BYTES].contains(&asked.0) {
                // Nothing has that limit: the queue was deleted a moment ago, and the question made a new one.
                let unused =
                    QueueDeleteOptions { if_unused: true, if_empty: true, ..QueueDeleteOptions::default() };
                channel.queue_delete(name.clone(), unused).await?;
                return Ok(Seen::Missing);
            }
            // That is how it was declared; or this kind of queue has no such argument.
            let text = if let AMQPValue::LongString(text) = &asked.1 { Some(text.to_string()) } else { None };
            let value = text.filter(|_| asked.0 != DEAD_LETTERS).map(|text| Value { text, is_text: true });
            known.insert(asked.0.to_owned(), value);
            continue;
        };
        let Some(Difference { argument, current }) = difference(&error) else { return unseen(error) };
        match argument.as_str() {
            "durable" => options.durable = Value::is_true(current),
            "auto_delete" => options.auto_delete = Value::is_true(current),
            _ => drop(known.insert(argument, current)),
        }
    }
    Ok(Seen::Hidden("it answers in circles".to_owned()))
}

/// What to ask for next. Arguments that the broker looks at before the one that is asked for tell themselves; and what the queue's
/// type does not have is not asked for, because nobody would look at it.
fn next_question(known: &BTreeMap<String, Option<Value>>) -> Option<(&'static str, AMQPValue)> {
    let is_set = |name: &str| known.get(name).is_some_and(Option::is_some);
    let kind = known.get(QUEUE_TYPE).and_then(|kind| Some(kind.as_ref()?.text.as_str()));
    let is_stream = kind == Some("stream");
    let number = || AMQPValue::LongLongInt(NOBODYS);
    let text = |text: &str| AMQPValue::LongString(text.into());
    let questions = [
        (!is_stream, MAX_LENGTH, number()),
        (true, MAX_LENGTH_BYTES, number()),
        (!is_stream, MESSAGE_TTL, number()),
        (!is_stream, DEAD_LETTERS, text(&format!("postrider-nowhere-{NOBODYS}"))),
        (true, QUEUE_TYPE, text("classic")),
        (is_stream, MAX_AGE, text("42Y")),
        (kind == Some("quorum"), DELIVERY_LIMIT, number()),
        (!is_stream && (is_set(MAX_LENGTH) || is_set(MAX_LENGTH_BYTES)), OVERFLOW, text("drop-head")),
    ];
    let open = questions.into_iter().find(|(applies, name, _)| *applies && !known.contains_key(*name));
    open.map(|(_, name, value)| (name, value))
}

/// Why there are no facts. An error when the connection has ended.
fn unseen<T>(error: Error) -> lapin::Result<Seen<T>> {
    match refusal(&error) {
        None => Err(error),
        Some(AMQPSoftError::NOTFOUND) => Ok(Seen::Missing),
        Some(AMQPSoftError::RESOURCELOCKED) => Ok(Seen::Exclusive),
        Some(_) => Ok(Seen::Hidden(error.to_string())),
    }
}

/// Reads `inequivalent arg 'durable' for exchange 'shop' in vhost '/': received 'true' but current is 'false'`.
fn difference(error: &Error) -> Option<Difference> {
    refusal(error).filter(|reason| matches!(reason, AMQPSoftError::PRECONDITIONFAILED))?;
    read(&error.to_string())
}

fn read(text: &str) -> Option<Difference> {
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

    fn told(text: &str) -> Option<(String, Option<String>)> {
        read(text).map(|told| (told.argument, told.current.map(|value| value.text)))
    }

    #[test]
    fn refusals_tell_what_differs() {
        let some =
            |argument: &str, value: Option<&str>| Some((argument.to_owned(), value.map(str::to_owned)));
        let start = "PRECONDITION_FAILED - inequivalent arg";
        assert_eq!(
            told(&format!(
                "{start} 'durable' for exchange 'a' in vhost '/': received 'true' but current is 'false'"
            )),
            some("durable", Some("false"))
        );
        assert_eq!(
            told(&format!(
                "{start} 'x-max-length' for queue 'q' in vhost '/': received the value '9' of type 'long' but current is none"
            )),
            some("x-max-length", None)
        );
        assert_eq!(
            told(&format!(
                "{start} 'alternate-exchange' for exchange 'a' in vhost '/': received none but current is the value 'spare' of type 'longstr'"
            )),
            some("alternate-exchange", Some("spare"))
        );
        assert_eq!(told("PRECONDITION_FAILED - something else"), None);
    }
}
