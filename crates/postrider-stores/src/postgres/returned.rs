//! Retries that wait in their place.
//!
//! A retry that is due soon stays in `ready`, free but not before its time, which is one HOT update where a move to `later`
//! and back is four row writes. Its place lies below every mark, so this process remembers it and asks for it by its place
//! when its time has come. A hint like any other: what is forgotten here is found by the next lapse sweep of anybody.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// Up to so long a retry waits in its place: a sweep passes by everything that does.
pub(super) const SHORT: Duration = Duration::from_secs(5);
/// Bounds the memory; what finds no room waits in `later`.
const MOST: usize = 100_000;

/// For each queue, by its number: places, and when they may be asked for.
#[derive(Debug, Default)]
pub(super) struct Returned(Mutex<HashMap<i16, Line>>);

type Line = BinaryHeap<Reverse<(Instant, i64)>>;

impl Returned {
    /// Whether `more` can be remembered.
    pub(super) fn has_room_for(&self, more: usize) -> bool {
        self.lines().values().map(BinaryHeap::len).sum::<usize>() + more <= MOST
    }

    /// What is at `place` may be claimed again `at` that time.
    pub(super) fn remember(&self, queue: i16, place: i64, at: Instant) {
        self.lines().entry(queue).or_default().push(Reverse((at, place)));
    }

    /// The places that may be claimed now, longest due first, at most `limit` of them. They are forgotten.
    pub(super) fn take_due(&self, queue: i16, limit: usize, now: Instant) -> Vec<i64> {
        let mut lines = self.lines();
        let Some(line) = lines.get_mut(&queue) else { return Vec::new() };
        let mut due = Vec::new();
        while due.len() < limit
            && let Some(Reverse((at, place))) = line.peek().copied()
            && at <= now
        {
            line.pop();
            due.push(place);
        }
        if line.is_empty() {
            lines.remove(&queue);
        }
        due
    }

    fn lines(&self) -> MutexGuard<'_, HashMap<i16, Line>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_come_when_they_are_due_and_once() {
        let returned = Returned::default();
        let now = Instant::now();
        let second = Duration::from_secs(1);
        for (queue, place, after) in [(1, 10, 2), (1, 11, 1), (1, 12, 0), (2, 13, 0)] {
            returned.remember(queue, place, now + second * after);
        }
        assert_eq!(returned.take_due(1, 10, now), [12]);
        assert!(returned.take_due(1, 10, now).is_empty());
        assert_eq!(returned.take_due(1, 1, now + second * 2), [11], "no more than asked for");
        assert_eq!(returned.take_due(1, 10, now + second * 2), [10]);
        assert_eq!(returned.take_due(2, 10, now), [13]);
        assert!(returned.lines().is_empty(), "an empty line is not kept");
    }

    #[test]
    fn memory_is_bounded() {
        let returned = Returned::default();
        assert!(returned.has_room_for(MOST));
        returned.remember(1, 1, Instant::now());
        assert!(!returned.has_room_for(MOST));
        assert!(returned.has_room_for(MOST - 1));
    }
}
