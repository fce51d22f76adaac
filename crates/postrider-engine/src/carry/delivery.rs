//! One message in hand.

use super::Subscription;
use postrider_core::{Claimed, OrderingKey};
use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::{Duration, SystemTime},
};
use tokio_util::sync::CancellationToken;

/// One message in hand, from its claim until it is settled.
pub struct Delivery {
    /// What was claimed.
    pub claimed: Claimed,
    pub(super) subscription: Arc<Subscription>,
    /// The claim that brought it, as `Leases` numbers them.
    pub(super) batch: u64,
    /// Somebody has begun to deliver it.
    pub(super) begun: AtomicBool,
    /// It waits to be settled.
    pub(super) on_desk: AtomicBool,
    /// Settled, or given up: its lease is not renewed any more.
    pub(super) ended: AtomicBool,
    lost: AtomicBool,
    /// Made when first asked for: most handlers never do.
    token: OnceLock<CancellationToken>,
}

impl Delivery {
    pub(crate) fn new(claimed: Claimed, subscription: Arc<Subscription>, batch: u64) -> Self {
        Self {
            claimed,
            subscription,
            batch,
            begun: AtomicBool::default(),
            on_desk: AtomicBool::default(),
            ended: AtomicBool::default(),
            lost: AtomicBool::default(),
            token: OnceLock::new(),
        }
    }

    /// How long ago it was staged; nothing if that lies ahead, since clocks differ.
    pub(super) fn age(&self, now: SystemTime) -> Option<Duration> {
        now.duration_since(self.claimed.staged_at).ok()
    }

    /// Cancelled when the message is no longer ours.
    pub fn cancellation(&self) -> CancellationToken {
        let token = self.token.get_or_init(CancellationToken::new);
        // It may have been lost before there was a token to cancel.
        if self.is_lost() {
            token.cancel();
        }
        token.clone()
    }

    /// Tells whoever delivers it that it is no longer ours.
    pub(crate) fn lose(&self) {
        self.lost.store(true, SeqCst);
        if let Some(token) = self.token.get() {
            token.cancel();
        }
    }

    /// Whether it is known to be no longer ours.
    pub fn is_lost(&self) -> bool {
        self.lost.load(SeqCst)
    }
}

impl fmt::Debug for Delivery {
    /// Shows no payload: it may carry personal data.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Delivery").field("lease", &self.claimed.lease).finish_non_exhaustive()
    }
}

/// What one runner runs.
#[derive(Debug)]
pub(super) enum Unit {
    One(Arc<Delivery>),
    /// The messages of a key's turn, one after the other.
    Turn(Vec<Arc<Delivery>>),
    /// Messages without an order, at once.
    Many(Vec<Arc<Delivery>>),
}

impl Unit {
    /// Groups what one claim brought, those without an order by up to `many`. The messages of a turn come in their order, perhaps
    /// with others in between.
    pub(super) fn group(deliveries: Vec<Arc<Delivery>>, many: usize) -> Vec<Self> {
        let mut units: Vec<Self> = Vec::new();
        let mut turns: HashMap<OrderingKey, usize> = HashMap::new();
        for delivery in deliveries {
            let Some(turn) = delivery.claimed.lease.turn() else {
                match units.last_mut() {
                    Some(Self::Many(begun)) if begun.len() < many => begun.push(delivery),
                    _ if many > 1 => units.push(Self::Many(vec![delivery])),
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
            Self::Turn(deliveries) | Self::Many(deliveries) => deliveries.len(),
        }
    }

    /// How many messages of it run at one moment.
    pub(super) fn at_once(&self) -> usize {
        match self {
            Self::One(_) | Self::Turn(_) => 1,
            Self::Many(deliveries) => deliveries.len(),
        }
    }

    pub(super) fn deliveries(&self) -> &[Arc<Delivery>] {
        match self {
            Self::One(delivery) => std::slice::from_ref(delivery),
            Self::Turn(deliveries) | Self::Many(deliveries) => deliveries,
        }
    }
}
