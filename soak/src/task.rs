//! The messages of the run, with their expected outcomes.

use clap::ValueEnum;
use postrider_core::{Event, Invalid, Json, Message};
use postrider_engine::Failure;
use rand::{RngExt, rngs::StdRng};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// A queue, named after what happens to its messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Work {
    /// A plain handler, whose effect is outside the database.
    Plain,
    /// The same in the order of each key.
    PlainByKey,
    /// A handler whose effect is a row that commits with the settlement.
    InTransaction,
    /// The same in the order of each key.
    InTransactionByKey,
    /// A relay publishes the message, and a consumer writes the effect in the transaction of its deduplication record.
    Relayed,
}

/// The expected outcome of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Outcome {
    /// Succeeds.
    Fine,
    /// Fails twice.
    Flaky,
    /// Fails at every attempt, and is dead-lettered.
    Hopeless,
    /// Is dead-lettered at once.
    Rejected,
}

/// The payload of every message.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Task {
    outcome: Outcome,
}

/// A defect that is built in on purpose: the check must find it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Defect {
    /// A plain handler reports success before its effect, for some messages long before: they are lost.
    EarlySuccess,
    /// Producers stage in another transaction than their own: messages are invented.
    StageOutsideTransaction,
    /// A handler writes its effect in another transaction than its message's: effects are doubled.
    EffectOutsideTransaction,
    /// Workers ignore ordering keys: messages are overtaken.
    NoOrdering,
}

/// The messages of one transaction, and a column of the witness table for each of their properties.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    pub(crate) messages: Vec<Message>,
    pub(crate) doomed: Vec<bool>,
    /// The ordering keys of messages that have one.
    pub(crate) keys: Vec<Option<String>>,
    /// Their numbers among the messages of the key.
    pub(crate) numbers: Vec<Option<i64>>,
}

impl Event for Task {
    const TYPE: &'static str = "task";
    const QUEUE: &'static str = Work::Plain.queue();
    type Codec = Json;
}

impl Work {
    pub(crate) const fn queue(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::PlainByKey => "plain-by-key",
            Self::InTransaction => "in-transaction",
            Self::InTransactionByKey => "in-transaction-by-key",
            Self::Relayed => "relayed",
        }
    }

    pub(crate) fn is_by_key(self) -> bool {
        matches!(self, Self::PlainByKey | Self::InTransactionByKey)
    }

    /// Most messages have the cheapest handler, so that a run has many.
    fn random(random: &mut StdRng) -> Self {
        match random.random_range(0..100) {
            0..55 => Self::Plain,
            55..72 => Self::PlainByKey,
            72..77 => Self::InTransaction,
            77..80 => Self::InTransactionByKey,
            _ => Self::Relayed,
        }
    }
}

impl Outcome {
    /// Most succeed. A consumer handles messages in batches, which one failure breaks up, so there failures are rarer.
    fn random(work: Work, random: &mut StdRng) -> Self {
        let of = if work == Work::Relayed { 10_000 } else { 1_000 };
        match random.random_range(0..of) {
            0..20 => Self::Flaky,
            20..25 => Self::Hopeless,
            25..30 => Self::Rejected,
            _ => Self::Fine,
        }
    }
}

impl Task {
    /// The result of the handler.
    pub(crate) fn result(&self, attempt: u32) -> Result<(), Failure> {
        match self.outcome {
            Outcome::Flaky if attempt > 2 => Ok(()),
            Outcome::Fine => Ok(()),
            Outcome::Flaky | Outcome::Hopeless => Err(Failure::retry("temporary failure")),
            Outcome::Rejected => Err(Failure::reject("permanent failure")),
        }
    }
}

/// Writes messages. Their ordering keys belong to this value alone, so that their order is known.
#[derive(Debug)]
pub(crate) struct Drafter {
    random: StdRng,
    prefix: Uuid,
    number: i64,
}

/// Ordering keys in use at the same time by one producer.
const KEYS: u32 = 50;

impl Drafter {
    pub(crate) fn new(random: StdRng) -> Self {
        Self { random, prefix: Uuid::now_v7(), number: 0 }
    }

    /// After a transaction whose result is unknown, and which may commit after the next one.
    pub(crate) fn change_keys(&mut self) {
        self.prefix = Uuid::now_v7();
    }

    /// The messages of one transaction: a few, or many.
    pub(crate) fn batch(&mut self) -> Result<Batch, Invalid> {
        let size = [1, 10, 100, 200, 200][self.random.random_range(0..5)];
        let mut batch = Batch::default();
        for _ in 0..size {
            self.add_to(&mut batch)?;
        }
        Ok(batch)
    }

    /// One transaction in twenty.
    pub(crate) fn is_rolled_back(&mut self) -> bool {
        self.random.random_range(0..20) == 0
    }

    fn add_to(&mut self, batch: &mut Batch) -> Result<(), Invalid> {
        let work = Work::random(&mut self.random);
        let outcome = Outcome::random(work, &mut self.random);
        let mut message = Message::builder(work.queue()).event_type(Task::TYPE).json(&Task { outcome });
        let key = work.is_by_key().then(|| format!("{}-{}", self.prefix, self.random.random_range(0..KEYS)));
        if let Some(key) = &key {
            self.number += 1;
            message = message.key(key.as_str());
        }
        batch.messages.push(message.build()?);
        batch.doomed.push(matches!(outcome, Outcome::Hopeless | Outcome::Rejected));
        batch.numbers.push(key.is_some().then_some(self.number));
        batch.keys.push(key);
        Ok(())
    }
}
