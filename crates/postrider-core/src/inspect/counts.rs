//! Message counts of a queue.

/// The number of messages of a queue in each state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Due and not leased, including messages blocked behind their key.
    pub pending: CappedCount,
    /// Leased: in flight.
    pub leased: CappedCount,
    /// Not due yet: timers and retries.
    pub scheduled: CappedCount,
    /// Dead letters.
    pub dead: CappedCount,
    /// Delivered and kept.
    pub done: CappedCount,
}

/// A count that stops at a cap.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CappedCount {
    /// The counted messages.
    pub at_least: u64,
    /// Whether counting stopped at the cap.
    pub capped: bool,
}

impl CappedCount {
    /// A count that stops at `cap`.
    pub fn new(counted: u64, cap: u64) -> Self {
        Self { at_least: counted.min(cap), capped: counted > cap }
    }
}
