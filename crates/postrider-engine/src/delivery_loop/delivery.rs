//! One message in flight.

use super::Subscription;
use crate::context::HandledDelivery;
use postrider_core::{ClaimedMessage, Message, MessageId, OrderingKey, QueueName};
use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::{Duration, SystemTime},
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// One message in flight, from its claim until it is settled.
pub struct Delivery {
    /// The claimed message and its lease.
    pub claimed: ClaimedMessage,
    pub(super) subscription: Arc<Subscription>,
    /// When the claim was sent, by this process.
    sent_at: Instant,
    /// The claim that brought it, as numbered by `LeaseRegistry`.
    pub(super) batch: u64,
    /// Its index in that claim.
    pub(super) index: usize,
    /// Its delivery has started.
    pub(super) started: AtomicBool,
    /// It waits in the settle buffer.
    pub(super) is_buffered: AtomicBool,
    /// Settled or given up: its lease is no longer renewed.
    pub(super) ended: AtomicBool,
    lost: AtomicBool,
    /// Created on first use: most handlers never ask for it.
    token: OnceLock<CancellationToken>,
}

/// A message whose leases expired this often may be killing its processes. After fewer crashes everything runs at full speed.
const SUSPECT_AFTER: u32 = 2;

impl Delivery {
    pub(super) fn new(
        claimed: ClaimedMessage,
        subscription: Arc<Subscription>,
        sent_at: Instant,
        batch: u64,
        index: usize,
    ) -> Self {
        Self {
            claimed,
            subscription,
            sent_at,
            batch,
            index,
            started: AtomicBool::default(),
            is_buffered: AtomicBool::default(),
            ended: AtomicBool::default(),
            lost: AtomicBool::default(),
            token: OnceLock::new(),
        }
    }

    /// The time by the store's clock. This process only measures the time since the claim.
    pub(crate) fn store_now(&self) -> SystemTime {
        self.claimed.claimed_at + self.sent_at.elapsed()
    }

    /// Time since it was staged; `None` if the store's clock was set back.
    pub(super) fn age(&self) -> Option<Duration> {
        self.store_now().duration_since(self.claimed.staged_at).ok()
    }

    /// Cancels the delivery: this process no longer holds the lease.
    pub(crate) fn lose(&self) {
        self.lost.store(true, SeqCst);
        if let Some(token) = self.token.get() {
            token.cancel();
        }
    }

    pub(super) fn payload_bytes(&self) -> usize {
        self.claimed.message.payload().len()
    }

    /// Whether the message may be killing its processes: then it is delivered while nothing else of its queue is.
    pub(super) fn is_suspect(&self) -> bool {
        self.claimed.expired_leases() >= SUSPECT_AFTER
    }

    /// Whether this process knows that it no longer holds the lease.
    pub fn is_lost(&self) -> bool {
        self.lost.load(SeqCst)
    }
}

impl HandledDelivery for Delivery {
    fn message(&self) -> &Message {
        &self.claimed.message
    }

    fn id(&self) -> MessageId {
        self.claimed.id()
    }

    fn queue(&self) -> &QueueName {
        self.claimed.lease.queue()
    }

    fn failed_attempts(&self) -> u32 {
        self.claimed.attempts
    }

    fn deliveries(&self) -> u32 {
        self.claimed.deliveries
    }

    fn staged_at(&self) -> SystemTime {
        self.claimed.staged_at
    }

    fn due_at(&self) -> SystemTime {
        self.claimed.due_at
    }

    fn cancellation(&self) -> CancellationToken {
        let token = self.token.get_or_init(CancellationToken::new);
        // The lease may have been lost before there was a token to cancel.
        if self.is_lost() {
            token.cancel();
        }
        token.clone()
    }
}

impl fmt::Debug for Delivery {
    /// Omits the payload, which may contain personal data.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Delivery").field("lease", &self.claimed.lease).finish_non_exhaustive()
    }
}

/// The unit of work of one executor.
#[derive(Debug)]
pub(super) enum WorkUnit {
    One(Arc<Delivery>),
    /// The messages of one ordering key's turn, delivered one after the other.
    Turn(Vec<Arc<Delivery>>),
    /// Unordered messages, delivered at once.
    Batch(Vec<Arc<Delivery>>),
}

impl WorkUnit {
    /// Groups the messages of one claim, unordered ones into batches of up to `max_batch`, suspects one by one. The messages of a
    /// turn keep their order, possibly with others in between.
    pub(super) fn group(deliveries: Vec<Arc<Delivery>>, max_batch: usize) -> Vec<Self> {
        let mut units: Vec<Self> = Vec::new();
        let mut turns: HashMap<OrderingKey, usize> = HashMap::new();
        for delivery in deliveries {
            let Some(turn) = delivery.claimed.lease.turn() else {
                match units.last_mut() {
                    Some(Self::Batch(begun))
                        if begun.len() < max_batch
                            && !delivery.is_suspect()
                            && !begun.iter().any(|other| other.is_suspect()) =>
                    {
                        begun.push(delivery);
                    }
                    _ if max_batch > 1 => units.push(Self::Batch(vec![delivery])),
                    _ => units.push(Self::One(delivery)),
                }
                continue;
            };
            let index = *turns.entry(turn.key.clone()).or_insert(units.len());
            match units.get_mut(index) {
                Some(Self::Turn(begun)) => begun.push(delivery),
                _ => units.push(Self::Turn(vec![delivery])),
            }
        }
        units
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Self::One(_) => 1,
            Self::Turn(deliveries) | Self::Batch(deliveries) => deliveries.len(),
        }
    }

    /// The number of its messages that run at one moment.
    pub(super) fn concurrency(&self) -> usize {
        match self {
            Self::One(_) | Self::Turn(_) => 1,
            Self::Batch(deliveries) => deliveries.len(),
        }
    }

    /// For a unit with a suspect: how often one of its messages was delivered in isolation before.
    pub(super) fn isolated_before(&self) -> Option<u32> {
        let suspects = self.deliveries().iter().filter(|delivery| delivery.is_suspect());
        suspects.map(|delivery| delivery.claimed.isolated).max()
    }

    pub(super) fn deliveries(&self) -> &[Arc<Delivery>] {
        match self {
            Self::One(delivery) => std::slice::from_ref(delivery),
            Self::Turn(deliveries) | Self::Batch(deliveries) => deliveries,
        }
    }
}
