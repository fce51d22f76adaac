//! Counts of messages, by outcome.

use std::ops::{Add, Sub};

/// Counts of messages that a runner claimed or received, by outcome. A message counts once per delivery.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Report {
    /// Claimed from the store, or received from a broker.
    pub claimed: u64,
    /// Of those claimed: an earlier lease of the message expired before it was settled. A consumer counts none: its broker
    /// decides about redelivery.
    pub reclaimed: u64,
    /// Settled as done; of a consumer: handled, and their effects are committed.
    pub delivered: u64,
    /// Acked by a consumer as duplicates: their effects happened before.
    pub duplicates: u64,
    /// Settled or nacked as failed, to be retried.
    pub retried: u64,
    /// Dead-lettered.
    pub dead: u64,
    /// Snoozed by their handlers, or interrupted by a stop; not counted as delivered.
    pub released: u64,
    /// Released or nacked before their delivery started.
    pub unstarted: u64,
    /// Lost: another worker claimed them before they were settled, or the broker did not confirm their ack.
    pub lost: u64,
    /// In flight now.
    pub in_flight: u64,
}

impl Add for Report {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            claimed: self.claimed + other.claimed,
            reclaimed: self.reclaimed + other.reclaimed,
            delivered: self.delivered + other.delivered,
            duplicates: self.duplicates + other.duplicates,
            retried: self.retried + other.retried,
            dead: self.dead + other.dead,
            released: self.released + other.released,
            unstarted: self.unstarted + other.unstarted,
            lost: self.lost + other.lost,
            in_flight: self.in_flight + other.in_flight,
        }
    }
}

impl Sub for Report {
    type Output = Self;

    /// The counts since `earlier`.
    fn sub(self, earlier: Self) -> Self {
        Self {
            claimed: self.claimed.saturating_sub(earlier.claimed),
            reclaimed: self.reclaimed.saturating_sub(earlier.reclaimed),
            delivered: self.delivered.saturating_sub(earlier.delivered),
            duplicates: self.duplicates.saturating_sub(earlier.duplicates),
            retried: self.retried.saturating_sub(earlier.retried),
            dead: self.dead.saturating_sub(earlier.dead),
            released: self.released.saturating_sub(earlier.released),
            unstarted: self.unstarted.saturating_sub(earlier.unstarted),
            lost: self.lost.saturating_sub(earlier.lost),
            in_flight: self.in_flight.saturating_sub(earlier.in_flight),
        }
    }
}
