//! How much a queue holds.

/// How many messages a queue holds in each state; every state is there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Due and free, or due and blocked behind its key.
    pub pending: Tally,
    /// In somebody's hands.
    pub leased: Tally,
    /// Not due yet: timers and retries.
    pub waiting: Tally,
    /// Dead letters.
    pub dead: Tally,
    /// Kept after success.
    pub done: Tally,
}

/// A count that stops at a cap.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// How many were counted.
    pub at_least: u64,
    /// Whether there may be more.
    pub capped: bool,
}

impl Tally {
    /// A tally of `counted`, which stopped at `cap`.
    pub fn new(counted: u64, cap: u64) -> Self {
        Self { at_least: counted.min(cap), capped: counted > cap }
    }
}
