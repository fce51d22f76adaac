//! What was fetched, and what became of it: the only truth about what may be committed.
//!
//! Kafka knows one number for a partition: everything below it is done. Answers come in any order, so each partition remembers what was
//! fetched until everything in front of it is done or refused, too; only that prefix is told to the cluster. What is to come again stays, and
//! with it everything behind it stays uncommitted: a process that dies begins there again.
//!
//! A partition that is taken away is forgotten in one step with the number that is committed for it. From then on its tickets are stale, so
//! that no answer is accepted that nobody would be told.

use postrider_core::{Answer, Incoming, Lane, Parcel, SourceError, Ticket};
use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::{sync::Notify, time::Instant};

/// Every assignment of a partition has a number of its own, in the whole process.
static ASSIGNMENTS: AtomicU64 = AtomicU64::new(0);

#[derive(Debug)]
pub(super) struct Shelf {
    state: Mutex<State>,
    /// There may be something to take.
    pub(super) change: Notify,
    /// So many of a partition are held at once.
    most: usize,
}

#[derive(Debug, Default)]
struct State {
    partitions: BTreeMap<i32, Partition>,
    /// Who had the first turn last.
    last: i32,
    trouble: Option<Trouble>,
    is_closed: bool,
}

/// Why nothing comes.
#[derive(Debug, Clone)]
pub(super) struct Trouble {
    pub(super) why: String,
    /// The client does not recover from it.
    pub(super) is_fatal: bool,
}

#[derive(Debug)]
struct Partition {
    assignment: u64,
    /// From the first that is not done on.
    records: BTreeMap<i64, Record>,
    /// Those of them that are in nobody's hands.
    waiting: BTreeSet<i64>,
    /// Everything below is done.
    done_to: Option<i64>,
    /// What the cluster has confirmed.
    confirmed: Option<i64>,
    is_paused: bool,
}

#[derive(Debug)]
enum Record {
    Open { incoming: Box<Incoming>, lane: Option<Lane>, due_at: Option<Instant>, delivery: u32 },
    Done,
}

/// A delivery.
#[derive(Debug, Clone, Copy)]
pub(super) struct Held {
    partition: i32,
    assignment: u64,
    offset: i64,
    delivery: u32,
}

/// Up to where partitions are done.
pub(super) type Positions = Vec<(i32, i64)>;

impl Shelf {
    pub(super) fn new(most: usize) -> Self {
        Self { state: Mutex::default(), change: Notify::new(), most }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// These partitions are ours.
    pub(super) fn assign(&self, partitions: impl Iterator<Item = i32>) {
        let mut state = self.state();
        for partition in partitions {
            let assignment = ASSIGNMENTS.fetch_add(1, Ordering::Relaxed);
            state.partitions.insert(partition, Partition::new(assignment));
        }
    }

    /// These are not any more. Tells up to where they are done, where that was not confirmed.
    pub(super) fn revoke(&self, partitions: impl Iterator<Item = i32>) -> Positions {
        let mut state = self.state();
        let unconfirmed = |number: i32| Some((number, state.partitions.remove(&number)?.unconfirmed()?));
        partitions.filter_map(unconfirmed).collect()
    }

    /// From now on nothing is put, taken or answered. What is done can still be told.
    pub(super) fn close(&self) {
        self.state().is_closed = true;
    }

    /// Puts what was fetched on it. Tells whether the partition is full, and has to be paused.
    pub(super) fn put(&self, partition: i32, offset: i64, lane: Option<Lane>, incoming: Incoming) -> bool {
        let mut state = self.state();
        let is_closed = state.is_closed;
        let partition = state.partitions.get_mut(&partition).filter(|_| !is_closed);
        let Some(partition) = partition else { return false };
        // Fetched again. One that is below what is done is no mistake: the topic was made anew, or has lost its end.
        if partition.records.contains_key(&offset) {
            return false;
        }
        partition
            .records
            .insert(offset, Record::Open { incoming: Box::new(incoming), lane, due_at: None, delivery: 0 });
        partition.waiting.insert(offset);
        let is_full = partition.records.len() >= self.most && !partition.is_paused;
        partition.is_paused |= is_full;
        drop(state);
        self.change.notify_one();
        is_full
    }

    /// Those that were paused and have room again.
    pub(super) fn roomy(&self) -> Vec<i32> {
        let mut state = self.state();
        let roomy = state
            .partitions
            .iter_mut()
            .filter(|(_, partition)| partition.is_paused && partition.records.len() <= self.most / 2);
        let resume = |(number, partition): (&i32, &mut Partition)| {
            partition.is_paused = false;
            *number
        };
        roomy.map(resume).collect()
    }

    /// Hands out up to `most`; or tells when it is worth to look again. Partitions take turns in going first.
    pub(super) fn take(&self, most: usize) -> (Vec<Parcel>, Option<Instant>) {
        let (mut state, now) = (self.state(), Instant::now());
        let state = &mut *state;
        let (mut taken, mut next) = (Vec::new(), None::<Instant>);
        if state.is_closed {
            return (taken, next);
        }
        let after = state.partitions.range(state.last + 1..).map(|(number, _)| *number);
        let order: Vec<i32> =
            after.chain(state.partitions.range(..=state.last).map(|(number, _)| *number)).collect();
        for number in order {
            let Some(partition) = state.partitions.get_mut(&number) else { continue };
            let before = taken.len();
            partition.take(number, most, now, &mut taken, &mut next);
            if taken.len() > before {
                state.last = number;
            }
            if taken.len() >= most {
                break;
            }
        }
        (taken, next)
    }

    /// What became of a delivery.
    pub(super) fn answer(&self, held: Held, answer: Answer) -> Result<(), SourceError> {
        let mut state = self.state();
        let partition = state.held(held)?;
        match answer {
            Answer::Done | Answer::Refuse => {
                partition.records.insert(held.offset, Record::Done);
                partition.advance();
            }
            Answer::Again { after } => {
                if let Some(Record::Open { due_at, .. }) = partition.records.get_mut(&held.offset) {
                    *due_at = Some(Instant::now() + after);
                }
                partition.waiting.insert(held.offset);
                drop(state);
                self.change.notify_one();
            }
        }
        Ok(())
    }

    /// Whether a delivery is still ours.
    pub(super) fn holds(&self, held: Held) -> Result<(), SourceError> {
        self.state().held(held).map(|_| ())
    }

    /// What is done, and not known to the cluster.
    pub(super) fn unconfirmed(&self) -> Positions {
        let state = self.state();
        state
            .partitions
            .iter()
            .filter_map(|(number, partition)| Some((*number, partition.unconfirmed()?)))
            .collect()
    }

    /// The cluster knows it.
    pub(super) fn confirm(&self, positions: Positions) {
        let mut state = self.state();
        for (number, position) in positions {
            if let Some(partition) = state.partitions.get_mut(&number) {
                partition.confirmed = Some(position);
            }
        }
    }

    /// Whoever receives should know.
    pub(super) fn complain(&self, trouble: Trouble) {
        self.state().trouble = Some(trouble);
        self.change.notify_one();
    }

    /// What was complained of, once.
    pub(super) fn trouble(&self) -> Option<Trouble> {
        self.state().trouble.take()
    }
}

impl State {
    fn held(&mut self, held: Held) -> Result<&mut Partition, SourceError> {
        if self.is_closed {
            return Err(SourceError::stale("it was closed"));
        }
        let partition = self.partitions.get_mut(&held.partition);
        let partition = partition.filter(|partition| partition.assignment == held.assignment);
        let partition =
            partition.ok_or_else(|| SourceError::stale("its partition was given to another consumer"))?;
        let is_ours = match partition.records.get(&held.offset) {
            Some(Record::Open { delivery, .. }) => {
                *delivery == held.delivery && !partition.waiting.contains(&held.offset)
            }
            Some(Record::Done) | None => false,
        };
        if is_ours { Ok(partition) } else { Err(SourceError::stale("it was answered before")) }
    }
}

impl Partition {
    fn new(assignment: u64) -> Self {
        Self {
            assignment,
            records: BTreeMap::new(),
            waiting: BTreeSet::new(),
            done_to: None,
            confirmed: None,
            is_paused: false,
        }
    }

    fn take(
        &mut self,
        number: i32,
        most: usize,
        now: Instant,
        taken: &mut Vec<Parcel>,
        next: &mut Option<Instant>,
    ) {
        let (mut closed, mut out) = (HashSet::new(), Vec::new());
        for offset in &self.waiting {
            if taken.len() >= most {
                break;
            }
            let Some(Record::Open { incoming, lane, due_at, delivery }) = self.records.get_mut(offset) else {
                continue;
            };
            if let Some(at) = due_at.filter(|at| *at > now) {
                *next = Some(next.map_or(at, |next| next.min(at)));
                // What is behind it waits, too.
                closed.extend(*lane);
                continue;
            }
            if lane.is_some_and(|lane| closed.contains(&lane)) {
                continue;
            }
            *due_at = None;
            *delivery += 1;
            let held =
                Held { partition: number, assignment: self.assignment, offset: *offset, delivery: *delivery };
            let parcel = Parcel::new(incoming.as_ref().clone(), Ticket::new(held));
            taken.push(match lane {
                Some(lane) => parcel.in_lane(*lane),
                None => parcel,
            });
            out.push(*offset);
        }
        for offset in out {
            self.waiting.remove(&offset);
        }
    }

    fn unconfirmed(&self) -> Option<i64> {
        self.done_to.filter(|_| self.done_to != self.confirmed)
    }

    /// Forgets what is done, as far as everything in front of it is.
    fn advance(&mut self) {
        while let Some(first) = self.records.first_entry()
            && matches!(first.get(), Record::Done)
        {
            self.done_to = Some(first.key() + 1);
            first.remove();
        }
    }
}

/// The longest that something waits here.
pub(super) const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

#[cfg(test)]
mod tests {
    use super::*;

    fn shelf(most: usize, records: i64) -> Shelf {
        let shelf = Shelf::new(most);
        shelf.assign([0].into_iter());
        for offset in 0..records {
            shelf.put(
                0,
                offset * 10,
                Some(Lane::of(&(offset % 2))),
                Incoming::new("orders", offset.to_string()),
            );
        }
        shelf
    }

    fn take(shelf: &Shelf) -> Vec<(String, Held)> {
        let parcel = |parcel: Parcel| {
            let body = String::from_utf8(parcel.incoming.body.to_vec()).unwrap();
            (body, *parcel.ticket.inside::<Held>().unwrap())
        };
        shelf.take(100).0.into_iter().map(parcel).collect()
    }

    fn bodies(taken: &[(String, Held)]) -> Vec<&str> {
        taken.iter().map(|(body, _)| body.as_str()).collect()
    }

    #[test]
    fn only_what_is_done_from_the_front_is_told() {
        let shelf = shelf(100, 4);
        let taken = take(&shelf);
        shelf.answer(taken[1].1, Answer::Done).unwrap();
        shelf.answer(taken[2].1, Answer::Refuse).unwrap();
        assert_eq!(shelf.unconfirmed(), []);
        shelf.answer(taken[0].1, Answer::Done).unwrap();
        // Offsets have gaps.
        assert_eq!(shelf.unconfirmed(), [(0, 21)]);
        assert_eq!(shelf.unconfirmed(), [(0, 21)], "nobody has heard it");
        shelf.confirm(vec![(0, 21)]);
        assert_eq!(shelf.unconfirmed(), []);
        assert_eq!(shelf.revoke([0].into_iter()), []);
    }

    #[test]
    fn what_is_to_come_again_keeps_everything_behind_it_uncommitted() {
        let shelf = shelf(100, 4);
        let taken = take(&shelf);
        shelf.answer(taken[0].1, Answer::Again { after: LONGEST }).unwrap();
        shelf.answer(taken[2].1, Answer::AT_ONCE).unwrap();
        for at in [1, 3] {
            shelf.answer(taken[at].1, Answer::Done).unwrap();
        }
        assert_eq!(shelf.unconfirmed(), []);
        // The third is behind the first in its lane.
        let (parcels, next) = shelf.take(100);
        assert!(parcels.is_empty() && next.is_some());
    }

    #[test]
    fn a_lane_comes_again_in_its_order() {
        let shelf = shelf(100, 4);
        let taken = take(&shelf);
        for at in [2, 0] {
            shelf.answer(taken[at].1, Answer::AT_ONCE).unwrap();
        }
        let again = take(&shelf);
        assert_eq!(bodies(&again), ["0", "2"]);
        assert!(shelf.answer(taken[0].1, Answer::Done).is_err(), "it was answered");
        shelf.answer(again[0].1, Answer::Done).unwrap();
        assert!(shelf.holds(again[0].1).is_err());
        assert!(shelf.holds(again[1].1).is_ok());
    }

    #[test]
    fn what_was_taken_away_cannot_be_answered_and_is_told_up_to_there() {
        let shelf = shelf(100, 3);
        let taken = take(&shelf);
        shelf.answer(taken[0].1, Answer::Done).unwrap();
        assert_eq!(shelf.revoke([0].into_iter()), [(0, 1)]);
        assert!(shelf.answer(taken[1].1, Answer::Done).is_err());
        // It comes back, and is another one.
        shelf.assign([0].into_iter());
        shelf.put(0, 10, None, Incoming::new("orders", "1"));
        assert!(shelf.answer(taken[1].1, Answer::Done).is_err());
        assert_eq!(bodies(&take(&shelf)), ["1"]);
    }

    #[test]
    fn what_is_closed_takes_nothing_more_and_tells_what_is_done() {
        let shelf = shelf(100, 3);
        let taken = take(&shelf);
        shelf.answer(taken[0].1, Answer::Done).unwrap();
        shelf.close();
        assert!(shelf.answer(taken[1].1, Answer::Done).is_err());
        assert_eq!(shelf.unconfirmed(), [(0, 1)]);
        shelf.confirm(vec![(0, 1)]);
        assert_eq!(shelf.unconfirmed(), []);
    }

    #[test]
    fn a_full_partition_is_paused_until_half_of_it_is_done() {
        let shelf = shelf(4, 3);
        let put = |offset| shelf.put(0, offset, None, Incoming::new("orders", "x"));
        assert!(put(100));
        assert!(!put(100), "fetched again");
        assert!(!put(101), "it is paused already");
        let taken = take(&shelf);
        assert_eq!(taken.len(), 5);
        for (_, held) in &taken[..2] {
            shelf.answer(*held, Answer::Done).unwrap();
        }
        assert!(shelf.roomy().is_empty());
        shelf.answer(taken[2].1, Answer::Done).unwrap();
        assert_eq!(shelf.roomy(), [0_i32]);
        assert!(shelf.roomy().is_empty());
    }

    #[test]
    fn partitions_take_turns() {
        let shelf = Shelf::new(100);
        shelf.assign([0, 1, 2].into_iter());
        for partition in [0, 1, 2] {
            for offset in 0..2 {
                shelf.put(partition, offset, None, Incoming::new("orders", partition.to_string()));
            }
        }
        let order: Vec<_> = (0..6).flat_map(|_| shelf.take(1).0).map(|parcel| parcel.incoming.body).collect();
        assert_eq!(order, ["1", "2", "0", "1", "2", "0"]);
    }
}
