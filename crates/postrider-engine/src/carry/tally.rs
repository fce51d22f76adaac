//! What became of the messages, counted.

use std::ops::{Add, Sub};

/// What became of the messages that were claimed. A message that is retried counts each time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Claimed.
    pub fetched: u64,
    /// Of those claimed: had been in the hands of somebody whose lease lapsed, then or earlier.
    pub reclaimed: u64,
    /// Settled as done.
    pub delivered: u64,
    /// Settled to be tried again.
    pub retried: u64,
    /// Settled as dead.
    pub dead: u64,
    /// Put off by their handlers, or interrupted by a stop; they count as never delivered.
    pub released: u64,
    /// Handed back without having been begun.
    pub handed_back: u64,
    /// Taken by somebody else before they were settled.
    pub lost: u64,
    /// In hand now.
    pub in_hand: u64,
}

impl Add for Tally {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            fetched: self.fetched + other.fetched,
            reclaimed: self.reclaimed + other.reclaimed,
            delivered: self.delivered + other.delivered,
            retried: self.retried + other.retried,
            dead: self.dead + other.dead,
            released: self.released + other.released,
            handed_back: self.handed_back + other.handed_back,
            lost: self.lost + other.lost,
            in_hand: self.in_hand + other.in_hand,
        }
    }
}

impl Sub for Tally {
    type Output = Self;

    /// What came since `earlier`.
    fn sub(self, earlier: Self) -> Self {
        Self {
            fetched: self.fetched.saturating_sub(earlier.fetched),
            reclaimed: self.reclaimed.saturating_sub(earlier.reclaimed),
            delivered: self.delivered.saturating_sub(earlier.delivered),
            retried: self.retried.saturating_sub(earlier.retried),
            dead: self.dead.saturating_sub(earlier.dead),
            released: self.released.saturating_sub(earlier.released),
            handed_back: self.handed_back.saturating_sub(earlier.handed_back),
            lost: self.lost.saturating_sub(earlier.lost),
            in_hand: self.in_hand.saturating_sub(earlier.in_hand),
        }
    }
}
