//! Tracks fetched records and their acks: the only truth about which offsets may be committed.
//!
//! Kafka keeps one number for a partition: every record below that offset is done. Acks come in any order, so each partition remembers its
//! records until every record in front of them is acked or rejected, too; only that prefix is committed. A nacked record stays, and every
//! record behind it stays uncommitted: a process that dies starts there again.
//!
//! A revoked partition is removed in one step with the offset that is committed for it. From then on its ack handles are stale, so that no
//! ack is accepted that would never reach the cluster.

use crate::byte_budget::{ByteBudget, BytesInFlight};
use postrider_core::{Ack, AckHandle, Incoming, LaneId, ReceivedMessage, SourceError};
use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::{sync::Notify, time::Instant};

/// The number of the next assignment of a partition, unique in the process.
static ASSIGNMENTS: AtomicU64 = AtomicU64::new(0);

#[derive(Debug)]
pub(super) struct OffsetTracker {
    state: Mutex<State>,
    /// Notified when there may be a record to take.
    pub(super) changed: Notify,
    /// The most records held for a partition.
    limit: usize,
    /// The bytes of all records that are not done.
    budget: ByteBudget,
}

#[derive(Debug, Default)]
struct State {
    partitions: BTreeMap<i32, Partition>,
    /// The partition that was served last.
    last_served: i32,
    error: Option<ConsumerError>,
    is_closed: bool,
}

/// The reason why no records arrive.
#[derive(Debug, Clone)]
pub(super) struct ConsumerError {
    pub(super) why: String,
    /// The client does not recover from it.
    pub(super) is_fatal: bool,
}

#[derive(Debug)]
struct Partition {
    assignment: u64,
    /// The records from the first that is not done on.
    records: BTreeMap<i64, Record>,
    /// The offsets of records that are not in flight.
    ready: BTreeSet<i64>,
    /// Every record below this offset is done.
    done_below: Option<i64>,
    /// The offset that the cluster has confirmed.
    committed: Option<i64>,
    is_paused: bool,
}

#[derive(Debug)]
enum Record {
    Open {
        incoming: Box<Incoming>,
        lane: Option<LaneId>,
        due_at: Option<Instant>,
        delivery: u32,
        _bytes: BytesInFlight,
    },
    Done,
}

/// The content of an ack handle: one delivery of a record.
#[derive(Debug, Clone, Copy)]
pub(super) struct RecordHandle {
    partition: i32,
    assignment: u64,
    offset: i64,
    delivery: u32,
}

/// The offset to commit for each partition.
pub(super) type Offsets = Vec<(i32, i64)>;

impl OffsetTracker {
    pub(super) fn new(limit: usize, budget: ByteBudget) -> Self {
        Self { state: Mutex::default(), changed: Notify::new(), limit, budget }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds partitions that were assigned to this consumer.
    pub(super) fn assign(&self, partitions: impl Iterator<Item = i32>) {
        let mut state = self.state();
        for partition in partitions {
            let assignment = ASSIGNMENTS.fetch_add(1, Ordering::Relaxed);
            state.partitions.insert(partition, Partition::new(assignment));
        }
    }

    /// Removes partitions that were revoked. Returns the offsets that are done and not committed.
    pub(super) fn revoke(&self, partitions: impl Iterator<Item = i32>) -> Offsets {
        let mut state = self.state();
        let uncommitted = |number: i32| Some((number, state.partitions.remove(&number)?.uncommitted()?));
        partitions.filter_map(uncommitted).collect()
    }

    /// Accepts no more records, takes and acks. Uncommitted offsets can still be read.
    pub(super) fn close(&self) {
        self.state().is_closed = true;
    }

    /// Adds a fetched record. Returns whether the partition is full now, and has to be paused.
    pub(super) fn insert(
        &self,
        partition: i32,
        offset: i64,
        lane: Option<LaneId>,
        incoming: Incoming,
    ) -> bool {
        let mut state = self.state();
        let is_closed = state.is_closed;
        let partition = state.partitions.get_mut(&partition).filter(|_| !is_closed);
        let Some(partition) = partition else { return false };
        // Fetched again. An offset below the committed one is no error: the topic was recreated, or lost its end.
        if partition.records.contains_key(&offset) {
            return false;
        }
        let _bytes = self.budget.add(&incoming);
        let incoming = Box::new(incoming);
        partition.records.insert(offset, Record::Open { incoming, lane, due_at: None, delivery: 0, _bytes });
        partition.ready.insert(offset);
        let is_full =
            (partition.records.len() >= self.limit || self.budget.free() == 0) && !partition.is_paused;
        partition.is_paused |= is_full;
        drop(state);
        self.changed.notify_one();
        is_full
    }

    /// Unmarks the paused partitions that have room again, and returns them.
    pub(super) fn resume_partitions(&self) -> Vec<i32> {
        let mut state = self.state();
        let resumable = state
            .partitions
            .iter_mut()
            .filter(|(_, partition)| partition.is_paused && partition.records.len() <= self.limit / 2)
            .filter(|_| self.budget.free() > self.budget.max() / 2 || self.budget.is_idle());
        let resume = |(number, partition): (&i32, &mut Partition)| {
            partition.is_paused = false;
            *number
        };
        resumable.map(resume).collect()
    }

    /// Takes up to `limit` records, and returns when the next delayed record is due. Partitions take turns in going first.
    pub(super) fn take(&self, limit: usize) -> (Vec<ReceivedMessage>, Option<Instant>) {
        let (mut state, now) = (self.state(), Instant::now());
        let state = &mut *state;
        let (mut taken, mut next) = (Vec::new(), None::<Instant>);
        if state.is_closed {
            return (taken, next);
        }
        let after = state.partitions.range(state.last_served + 1..).map(|(number, _)| *number);
        let order: Vec<i32> =
            after.chain(state.partitions.range(..=state.last_served).map(|(number, _)| *number)).collect();
        for number in order {
            let Some(partition) = state.partitions.get_mut(&number) else { continue };
            let before = taken.len();
            partition.take(number, limit, now, &mut taken, &mut next);
            if taken.len() > before {
                state.last_served = number;
            }
            if taken.len() >= limit {
                break;
            }
        }
        (taken, next)
    }

    /// Applies an ack, nack or rejection to a record in flight.
    pub(super) fn ack(&self, handle: RecordHandle, ack: Ack) -> Result<(), SourceError> {
        let mut state = self.state();
        let partition = state.handle(handle)?;
        match ack {
            Ack::Ack | Ack::Reject => {
                partition.records.insert(handle.offset, Record::Done);
                partition.advance();
            }
            Ack::Nack { after } => {
                if let Some(Record::Open { due_at, .. }) = partition.records.get_mut(&handle.offset) {
                    *due_at = Some(Instant::now() + after);
                }
                partition.ready.insert(handle.offset);
                drop(state);
                self.changed.notify_one();
            }
        }
        Ok(())
    }

    /// Fails if the record is not in flight under this handle any more.
    pub(super) fn check(&self, handle: RecordHandle) -> Result<(), SourceError> {
        self.state().handle(handle).map(|_| ())
    }

    /// The offsets that are done and not committed.
    pub(super) fn uncommitted(&self) -> Offsets {
        let state = self.state();
        state
            .partitions
            .iter()
            .filter_map(|(number, partition)| Some((*number, partition.uncommitted()?)))
            .collect()
    }

    /// Records that the cluster has confirmed these offsets.
    pub(super) fn mark_committed(&self, offsets: Offsets) {
        let mut state = self.state();
        for (number, offset) in offsets {
            if let Some(partition) = state.partitions.get_mut(&number) {
                partition.committed = Some(offset);
            }
        }
    }

    /// Passes an error to the next call that receives.
    pub(super) fn report_error(&self, error: ConsumerError) {
        self.state().error = Some(error);
        self.changed.notify_one();
    }

    /// The reported error, once.
    pub(super) fn take_error(&self) -> Option<ConsumerError> {
        self.state().error.take()
    }
}

impl State {
    fn handle(&mut self, handle: RecordHandle) -> Result<&mut Partition, SourceError> {
        if self.is_closed {
            return Err(SourceError::stale("the source is closed"));
        }
        let partition = self.partitions.get_mut(&handle.partition);
        let partition = partition.filter(|partition| partition.assignment == handle.assignment);
        let partition =
            partition.ok_or_else(|| SourceError::stale("the partition was assigned to another consumer"))?;
        let is_in_flight = match partition.records.get(&handle.offset) {
            Some(Record::Open { delivery, .. }) => {
                *delivery == handle.delivery && !partition.ready.contains(&handle.offset)
            }
            Some(Record::Done) | None => false,
        };
        if is_in_flight { Ok(partition) } else { Err(SourceError::stale("the message was acked before")) }
    }
}

impl Partition {
    fn new(assignment: u64) -> Self {
        Self {
            assignment,
            records: BTreeMap::new(),
            ready: BTreeSet::new(),
            done_below: None,
            committed: None,
            is_paused: false,
        }
    }

    fn take(
        &mut self,
        number: i32,
        limit: usize,
        now: Instant,
        taken: &mut Vec<ReceivedMessage>,
        next: &mut Option<Instant>,
    ) {
        let (mut blocked_lanes, mut offsets) = (HashSet::new(), Vec::new());
        for offset in &self.ready {
            if taken.len() >= limit {
                break;
            }
            let Some(Record::Open { incoming, lane, due_at, delivery, .. }) = self.records.get_mut(offset)
            else {
                continue;
            };
            if let Some(at) = due_at.filter(|at| *at > now) {
                *next = Some(next.map_or(at, |next| next.min(at)));
                // The records behind it in its lane wait, too.
                blocked_lanes.extend(*lane);
                continue;
            }
            if lane.is_some_and(|lane| blocked_lanes.contains(&lane)) {
                continue;
            }
            *due_at = None;
            *delivery += 1;
            let handle = RecordHandle {
                partition: number,
                assignment: self.assignment,
                offset: *offset,
                delivery: *delivery,
            };
            let message = ReceivedMessage::new(incoming.as_ref().clone(), AckHandle::new(handle));
            taken.push(match lane {
                Some(lane) => message.in_lane(*lane),
                None => message,
            });
            offsets.push(*offset);
        }
        for offset in offsets {
            self.ready.remove(&offset);
        }
    }

    fn uncommitted(&self) -> Option<i64> {
        self.done_below.filter(|_| self.done_below != self.committed)
    }

    /// Removes done records from the front.
    fn advance(&mut self) {
        while let Some(first) = self.records.first_entry()
            && matches!(first.get(), Record::Done)
        {
            self.done_below = Some(first.key() + 1);
            first.remove();
        }
    }
}

/// The longest delay of a nack.
pub(super) const MAX_DELAY: Duration = Duration::from_secs(24 * 60 * 60);

#[cfg(test)]
mod tests {
    use super::*;

    fn tracker(limit: usize, records: i64) -> OffsetTracker {
        let tracker = OffsetTracker::new(limit, ByteBudget::new(1 << 20));
        tracker.assign([0].into_iter());
        for offset in 0..records {
            tracker.insert(
                0,
                offset * 10,
                Some(LaneId::of(&(offset % 2))),
                Incoming::new("orders", offset.to_string()),
            );
        }
        tracker
    }

    fn take(tracker: &OffsetTracker) -> Vec<(String, RecordHandle)> {
        let message = |message: ReceivedMessage| {
            let body = String::from_utf8(message.incoming.body.to_vec()).unwrap();
            (body, *message.ack_handle.downcast::<RecordHandle>().unwrap())
        };
        tracker.take(100).0.into_iter().map(message).collect()
    }

    fn bodies(taken: &[(String, RecordHandle)]) -> Vec<&str> {
        taken.iter().map(|(body, _)| body.as_str()).collect()
    }

    #[test]
    fn uncommitted_covers_only_the_acked_prefix() {
        let tracker = tracker(100, 4);
        let taken = take(&tracker);
        tracker.ack(taken[1].1, Ack::Ack).unwrap();
        tracker.ack(taken[2].1, Ack::Reject).unwrap();
        assert_eq!(tracker.uncommitted(), []);
        tracker.ack(taken[0].1, Ack::Ack).unwrap();
        // Offsets have gaps.
        assert_eq!(tracker.uncommitted(), [(0, 21)]);
        assert_eq!(tracker.uncommitted(), [(0, 21)], "not committed yet");
        tracker.mark_committed(vec![(0, 21)]);
        assert_eq!(tracker.uncommitted(), []);
        assert_eq!(tracker.revoke([0].into_iter()), []);
    }

    #[test]
    fn nacked_record_keeps_later_offsets_uncommitted() {
        let tracker = tracker(100, 4);
        let taken = take(&tracker);
        tracker.ack(taken[0].1, Ack::Nack { after: MAX_DELAY }).unwrap();
        tracker.ack(taken[2].1, Ack::REDELIVER_NOW).unwrap();
        for at in [1, 3] {
            tracker.ack(taken[at].1, Ack::Ack).unwrap();
        }
        assert_eq!(tracker.uncommitted(), []);
        // The third is behind the first in its lane.
        let (messages, next) = tracker.take(100);
        assert!(messages.is_empty() && next.is_some());
    }

    #[test]
    fn nacked_lane_is_redelivered_in_order() {
        let tracker = tracker(100, 4);
        let taken = take(&tracker);
        for at in [2, 0] {
            tracker.ack(taken[at].1, Ack::REDELIVER_NOW).unwrap();
        }
        let again = take(&tracker);
        assert_eq!(bodies(&again), ["0", "2"]);
        assert!(tracker.ack(taken[0].1, Ack::Ack).is_err(), "it was acked before");
        tracker.ack(again[0].1, Ack::Ack).unwrap();
        assert!(tracker.check(again[0].1).is_err());
        assert!(tracker.check(again[1].1).is_ok());
    }

    #[test]
    fn revoke_returns_done_offset_and_makes_handles_stale() {
        let tracker = tracker(100, 3);
        let taken = take(&tracker);
        tracker.ack(taken[0].1, Ack::Ack).unwrap();
        assert_eq!(tracker.revoke([0].into_iter()), [(0, 1)]);
        assert!(tracker.ack(taken[1].1, Ack::Ack).is_err());
        // The partition is assigned again, under another number.
        tracker.assign([0].into_iter());
        tracker.insert(0, 10, None, Incoming::new("orders", "1"));
        assert!(tracker.ack(taken[1].1, Ack::Ack).is_err());
        assert_eq!(bodies(&take(&tracker)), ["1"]);
    }

    #[test]
    fn close_refuses_acks_and_keeps_uncommitted_offsets() {
        let tracker = tracker(100, 3);
        let taken = take(&tracker);
        tracker.ack(taken[0].1, Ack::Ack).unwrap();
        tracker.close();
        assert!(tracker.ack(taken[1].1, Ack::Ack).is_err());
        assert_eq!(tracker.uncommitted(), [(0, 1)]);
        tracker.mark_committed(vec![(0, 1)]);
        assert_eq!(tracker.uncommitted(), []);
    }

    #[test]
    fn full_partition_is_paused_until_half_is_done() {
        let tracker = tracker(4, 3);
        let insert = |offset| tracker.insert(0, offset, None, Incoming::new("orders", "x"));
        assert!(insert(100));
        assert!(!insert(100), "fetched again");
        assert!(!insert(101), "it is paused already");
        let taken = take(&tracker);
        assert_eq!(taken.len(), 5);
        for (_, handle) in &taken[..2] {
            tracker.ack(*handle, Ack::Ack).unwrap();
        }
        assert!(tracker.resume_partitions().is_empty());
        tracker.ack(taken[2].1, Ack::Ack).unwrap();
        assert_eq!(tracker.resume_partitions(), [0_i32]);
        assert!(tracker.resume_partitions().is_empty());
    }

    #[test]
    fn full_budget_pauses_every_partition_until_half_is_free() {
        let tracker = OffsetTracker::new(100, ByteBudget::new(1_000));
        tracker.assign([0, 1].into_iter());
        let insert = |partition, offset| {
            tracker.insert(partition, offset, None, Incoming::new("orders", vec![b'x'; 300]))
        };
        assert!((0..3).all(|offset| !insert(0, offset)));
        assert!(insert(1, 0) && insert(0, 3), "1,000 bytes are full");
        let taken = take(&tracker);
        for (_, handle) in &taken[..3] {
            tracker.ack(*handle, Ack::Ack).unwrap();
        }
        assert!(tracker.resume_partitions().is_empty());
        tracker.ack(taken[3].1, Ack::Ack).unwrap();
        assert_eq!(tracker.resume_partitions(), [0_i32, 1]);
    }

    #[test]
    fn take_serves_partitions_in_turn() {
        let tracker = OffsetTracker::new(100, ByteBudget::new(1 << 20));
        tracker.assign([0, 1, 2].into_iter());
        for partition in [0, 1, 2] {
            for offset in 0..2 {
                tracker.insert(partition, offset, None, Incoming::new("orders", partition.to_string()));
            }
        }
        let order: Vec<_> =
            (0..6).flat_map(|_| tracker.take(1).0).map(|message| message.incoming.body).collect();
        assert_eq!(order, ["1", "2", "0", "1", "2", "0"]);
    }
}
