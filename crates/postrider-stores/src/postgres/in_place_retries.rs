//! Retries that wait in place.
//!
//! A retry that is due soon stays in `ready`, free but not before its time, which is one HOT update where a move to `scheduled`
//! and back is four row writes. Its position lies below every low-water mark, so this process remembers the position and claims
//! it when it is due. The memory is a hint: the next expiry sweep of any process finds a retry that is forgotten here.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// The longest delay of a retry that waits in place: every sweep has to step over these rows.
pub(super) const MAX_DELAY: Duration = Duration::from_secs(5);
/// Bounds the memory; beyond it retries wait in `scheduled`.
const CAPACITY: usize = 100_000;

/// For each queue, by its number: positions, and when they may be claimed.
#[derive(Debug, Default)]
pub(super) struct InPlaceRetries(Mutex<HashMap<i16, RetryHeap>>);

type RetryHeap = BinaryHeap<Reverse<(Instant, i64)>>;

impl InPlaceRetries {
    /// Whether `more` positions can be remembered.
    pub(super) fn has_capacity_for(&self, more: usize) -> bool {
        self.heaps().values().map(BinaryHeap::len).sum::<usize>() + more <= CAPACITY
    }

    /// The message at `position` may be claimed again from `at` on.
    pub(super) fn remember(&self, queue: i16, position: i64, at: Instant) {
        self.heaps().entry(queue).or_default().push(Reverse((at, position)));
    }

    /// Removes and returns the positions that may be claimed now, longest due first, at most `limit` of them.
    pub(super) fn take_due(&self, queue: i16, limit: usize, now: Instant) -> Vec<i64> {
        let mut heaps = self.heaps();
        let Some(heap) = heaps.get_mut(&queue) else { return Vec::new() };
        let mut due = Vec::new();
        while due.len() < limit
            && let Some(Reverse((at, position))) = heap.peek().copied()
            && at <= now
        {
            heap.pop();
            due.push(position);
        }
        if heap.is_empty() {
            heaps.remove(&queue);
        }
        due
    }

    fn heaps(&self) -> MutexGuard<'_, HashMap<i16, RetryHeap>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn take_due_returns_each_due_position_once() {
        let retries = InPlaceRetries::default();
        let now = Instant::now();
        let second = Duration::from_secs(1);
        for (queue, position, after) in [(1, 10, 2), (1, 11, 1), (1, 12, 0), (2, 13, 0)] {
            retries.remember(queue, position, now + second * after);
        }
        assert_eq!(retries.take_due(1, 10, now), [12]);
        assert!(retries.take_due(1, 10, now).is_empty());
        assert_eq!(retries.take_due(1, 1, now + second * 2), [11], "no more than asked for");
        assert_eq!(retries.take_due(1, 10, now + second * 2), [10]);
        assert_eq!(retries.take_due(2, 10, now), [13]);
        assert!(retries.heaps().is_empty(), "an empty heap is removed");
    }

    #[test]
    fn capacity_bounds_remembered_positions() {
        let retries = InPlaceRetries::default();
        assert!(retries.has_capacity_for(CAPACITY));
        retries.remember(1, 1, Instant::now());
        assert!(!retries.has_capacity_for(CAPACITY));
        assert!(retries.has_capacity_for(CAPACITY - 1));
    }
}
