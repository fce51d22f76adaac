//! Messages of fault tests, with their expected outcomes.

use postrider_core::{Event, IntoMessage, Json, Message, RetryStrategy};
use postrider_engine::{Context, Failure, Queue};
use rand::{Rng, RngExt, rngs::StdRng};
use serde::{Deserialize, Serialize};
use std::{
    fs::{File, OpenOptions},
    io::Write,
    path::Path,
    sync::Arc,
    time::Duration,
};
use uuid::Uuid;

/// The expected outcome of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ExpectedOutcome {
    /// Succeeds.
    Fine,
    /// Fails twice.
    Flaky,
    /// Fails at every attempt, and is dead-lettered.
    Hopeless,
    /// Is dead-lettered at once.
    Rejected,
}

/// Handled by a plain handler: its effect is outside the database.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct OrderParcel {
    expected: ExpectedOutcome,
}

impl Event for OrderParcel {
    const TYPE: &'static str = "parcel";
    const QUEUE: &'static str = "parcels";
    type Codec = Json;
}

/// Handled in a transaction: its effect is a row.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Booking {
    expected: ExpectedOutcome,
}

impl Event for Booking {
    const TYPE: &'static str = "booking";
    const QUEUE: &'static str = "bookings";
    type Codec = Json;
}

impl ExpectedOutcome {
    /// Most succeed.
    fn random(random: &mut impl Rng) -> Self {
        match random.random_range(0..100) {
            0..4 => Self::Flaky,
            4..5 => Self::Hopeless,
            5..6 => Self::Rejected,
            _ => Self::Fine,
        }
    }

    pub(crate) fn is_doomed(self) -> bool {
        matches!(self, Self::Hopeless | Self::Rejected)
    }

    /// The result of the handler.
    pub(crate) fn result(self, attempt: u32) -> Result<(), Failure> {
        match self {
            Self::Flaky if attempt > 2 => Ok(()),
            Self::Fine => Ok(()),
            Self::Flaky | Self::Hopeless => Err(Failure::retry("temporary failure")),
            Self::Rejected => Err(Failure::reject("permanent failure")),
        }
    }
}

impl Booking {
    pub(crate) fn expected(&self) -> ExpectedOutcome {
        self.expected
    }
}

/// A batch of both kinds, each message with whether it is doomed.
pub(crate) fn batch(random: &mut StdRng, size: usize) -> (Vec<Message>, Vec<bool>) {
    let one = |_| {
        let expected = ExpectedOutcome::random(random);
        let message = match random.random_range(0..3) {
            0 => (&Booking { expected }).into_message(),
            _ => (&OrderParcel { expected }).into_message(),
        };
        (message.unwrap(), expected.is_doomed())
    };
    (0..size).map(one).unzip()
}

/// The effects of plain handlers, as a file that every process appends to: the world outside the database.
#[derive(Debug, Clone)]
pub(crate) struct Journal(Arc<File>);

impl Journal {
    pub(crate) fn open(path: &Path) -> Self {
        Self(Arc::new(OpenOptions::new().create(true).append(true).open(path).unwrap()))
    }

    /// One write of a few bytes: complete or not at all, whichever process is killed.
    pub(crate) fn note(&self, id: Uuid) {
        (&*self.0).write_all(id.as_bytes()).unwrap();
    }

    pub(crate) fn read(path: &Path) -> Vec<Uuid> {
        let bytes = std::fs::read(path).unwrap_or_default();
        assert_eq!(bytes.len() % 16, 0, "an entry is complete");
        bytes.chunks_exact(16).map(|id| Uuid::from_slice(id).unwrap()).collect()
    }
}

/// The queue of the plain handler.
pub(crate) fn parcels(journal: Journal, lease_for: Duration) -> Queue {
    let handler = move |parcel: OrderParcel, context: Context| {
        let journal = journal.clone();
        async move {
            parcel.expected.result(context.attempt())?;
            journal.note(context.id().as_uuid());
            Ok::<(), Failure>(())
        }
    };
    usual(Queue::new(OrderParcel::QUEUE).on(handler), lease_for)
}

/// Settings that both queues share. Messages whose workers are killed again and again are not dead-lettered, and ten failures
/// in a row are no accident. The limit on the total time is never reached, unless a wrong clock measures it.
pub(crate) fn usual(queue: Queue, lease_for: Duration) -> Queue {
    queue
        .concurrency(8)
        .lease_for(lease_for)
        .retry(
            RetryStrategy::constant(Duration::from_millis(50))
                .with_max_attempts(10)
                .with_max_total(Duration::from_secs(30 * 60)),
        )
        .without_max_deliveries()
}
