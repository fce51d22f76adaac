//! What a torture of an ordered queue knows to be true, against which every delivery is checked.
//!
//! The truth lives in memory and learns of everything before the store does: of a message before it is committed, of the end
//! of a turn before it is settled. So whatever the store then hands out can be judged at once:
//!
//! - a key is in nobody else's hands;
//! - everything staged before a message of its key has ended, and nothing that has ended comes again;
//! - the messages of a turn follow each other without a gap, and the last is marked;
//! - a settlement under a living lease is never lost; one that was overtaken by a new owner always is.
//!
//! **Generations.** When time is moved on, every lease lapses at once, and whatever is in hand then counts as crashed: its
//! owner may settle it only where nobody has taken it since. The torture moves time only while no call to the store is under
//! way, so every claim belongs to one generation.

use postrider_core::{Claimed, Lease, LeaseToken, MessageId, OnFailure, OrderingKey, Settle, Settlement};
use std::collections::{HashMap, HashSet};

#[derive(Debug)]
pub(crate) struct Truth {
    policy: OnFailure,
    generation: u64,
    keys: HashMap<OrderingKey, Key>,
    ended: usize,
    dead: HashSet<MessageId>,
    /// Empty answers since something last moved.
    idle: usize,
    pub(crate) tally: Tally,
}

/// What happened, to show that a run was worth its name.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) deliveries: usize,
    pub(crate) failures: usize,
    pub(crate) crashes: usize,
    pub(crate) lost: usize,
    pub(crate) released: usize,
}

#[derive(Debug, Default)]
struct Key {
    /// In the order staged.
    messages: Vec<(MessageId, Fate)>,
    owner: Option<Owner>,
}

/// A turn: the token of its claim, and the generation it was claimed in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Owner {
    token: LeaseToken,
    generation: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Waiting,
    /// Its owner is about to say that it has ended. Until the answer is there, both is possible.
    Ending {
        by: Owner,
        /// Something behind it was handed out, so it must have ended.
        relied_on: bool,
        /// It was handed out again, so it cannot have ended.
        redelivered: bool,
    },
    Ended,
}

impl Truth {
    pub(crate) fn new(policy: OnFailure) -> Self {
        Self {
            policy,
            generation: 0,
            keys: HashMap::new(),
            ended: 0,
            dead: HashSet::new(),
            idle: 0,
            tally: Tally::default(),
        }
    }

    /// A message is about to be committed.
    pub(crate) fn staged(&mut self, key: &OrderingKey, id: MessageId) {
        self.keys.entry(key.clone()).or_default().messages.push((id, Fate::Waiting));
    }

    /// A claim was answered. Says in which generation.
    pub(crate) fn delivered(&mut self, claimed: &[Claimed]) -> u64 {
        let mut keys = Vec::new();
        for each in claimed {
            let key = &each.lease.turn().expect("an ordered queue hands out turns").key;
            if !keys.contains(&key) {
                keys.push(key);
            }
        }
        for key in keys {
            let is_of_key = |each: &&Claimed| each.lease.turn().is_some_and(|turn| turn.key == *key);
            self.turn_begins(key, &claimed.iter().filter(is_of_key).collect::<Vec<_>>());
        }
        self.tally.deliveries += claimed.len();
        self.idle = if claimed.is_empty() { self.idle + 1 } else { 0 };
        self.generation
    }

    fn turn_begins(&mut self, name: &OrderingKey, turn: &[&Claimed]) {
        let generation = self.generation;
        let key = self.keys.get_mut(name).unwrap_or_else(|| panic!("{name} was never staged"));
        let in_flight = key.owner.is_some_and(|owner| owner.generation == generation);
        assert!(!in_flight, "{name} is in two hands");
        let by = Owner { token: turn[0].lease.token(), generation };
        key.owner = Some(by);

        let place = |id| key.messages.iter().position(|(staged, _)| *staged == id);
        let head = place(turn[0].id()).unwrap_or_else(|| panic!("{} was never staged", turn[0].id()));
        for (id, fate) in &mut key.messages[..head] {
            match fate {
                Fate::Waiting => panic!("{id} of {name} was overtaken by {}", turn[0].id()),
                Fate::Ending { relied_on, .. } => *relied_on = true,
                Fate::Ended => {}
            }
        }
        for (at, claimed) in turn.iter().enumerate() {
            let (id, fate) = key.messages.get_mut(head + at).expect("a turn ends with its key");
            assert_eq!(claimed.id(), *id, "the messages of a turn of {name} follow each other");
            assert_eq!(claimed.lease.token(), by.token, "a turn of {name} has one token");
            let last = claimed.lease.turn().is_some_and(|turn| turn.last);
            assert_eq!(last, at + 1 == turn.len(), "exactly the last message of a turn of {name} is marked");
            match fate {
                Fate::Waiting => {}
                Fate::Ending { by, redelivered, .. } => {
                    assert!(
                        by.generation < generation,
                        "{id} of {name} was handed out while its owner settled it"
                    );
                    *redelivered = true;
                }
                Fate::Ended => panic!("{id} of {name} was handed out after it had ended"),
            }
        }
    }

    /// Settlements of a claim of this generation are about to be sent.
    pub(crate) fn settling(&mut self, batch: &[Settle], generation: u64) {
        for settle in batch {
            let by = Owner { token: settle.lease.token(), generation };
            let failed = matches!(settle.settlement, Settlement::Retry { .. } | Settlement::Dead { .. });
            self.tally.failures += usize::from(failed);
            let ends = self.ends(&settle.settlement);
            let key = self.key_of(&settle.lease);
            if key.owner != Some(by) {
                continue; // Somebody else has taken it, so this will be lost; or its turn has just failed.
            }
            if ends {
                *key.fate(&settle.lease) = Fate::Ending { by, relied_on: false, redelivered: false };
            }
            if failed || settle.lease.turn().is_some_and(|turn| turn.last) {
                key.owner = None;
            }
        }
    }

    /// They were answered.
    pub(crate) fn settled(&mut self, batch: &[Settle], lost: &[Lease], generation: u64) {
        self.idle = 0;
        let is_live = generation == self.generation;
        let lost: HashSet<_> = lost.iter().collect();
        for settle in batch {
            let is_lost = lost.contains(&settle.lease);
            let is_release = settle.settlement == Settlement::Release;
            let id = settle.lease.id();
            // What is behind a failure is handed back by the failure; a word on that may be lost.
            assert!(
                !(is_live && is_lost && !is_release),
                "a settlement of {id} under a living lease was lost"
            );
            self.tally.lost += usize::from(is_lost && !is_release);
            if !self.ends(&settle.settlement) {
                continue;
            }
            let by = Owner { token: settle.lease.token(), generation };
            let fate = self.key_of(&settle.lease).fate(&settle.lease);
            match *fate {
                Fate::Ending { by: owner, relied_on, redelivered } if owner == by => {
                    assert!(!(is_lost && relied_on), "{id} was overtaken: its end was lost");
                    assert!(is_lost || !redelivered, "{id} ended in the hands of its old owner");
                    *fate = if is_lost { Fate::Waiting } else { Fate::Ended };
                }
                _ => assert!(is_lost, "{id} ended in the hands of its old owner"),
            }
            if !is_lost {
                self.ended += 1;
                if settle.settlement != Settlement::Done {
                    assert!(self.dead.insert(id), "{id} died twice");
                }
            }
        }
    }

    /// A claimer forgot what it had in hand.
    pub(crate) fn crashed(&mut self) {
        self.tally.crashes += 1;
    }

    /// An operator let a key run again.
    pub(crate) fn released(&mut self) {
        self.tally.released += 1;
        self.idle = 0;
    }

    /// Every lease is about to lapse.
    pub(crate) fn lapse(&mut self) {
        self.generation += 1;
        self.idle = 0;
    }

    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// How many answers in a row were empty while nothing moved.
    pub(crate) fn idle(&self) -> usize {
        self.idle
    }

    pub(crate) fn ended(&self) -> usize {
        self.ended
    }

    pub(crate) fn dead(&self) -> &HashSet<MessageId> {
        &self.dead
    }

    /// Whether a message that is settled so has left the queue, as far as its key is concerned.
    fn ends(&self, settlement: &Settlement) -> bool {
        match settlement {
            Settlement::Done | Settlement::Forward { .. } => true,
            Settlement::Dead { .. } => self.policy == OnFailure::Skip,
            Settlement::Retry { .. } | Settlement::Release | Settlement::Snooze { .. } => false,
        }
    }

    fn key_of(&mut self, lease: &Lease) -> &mut Key {
        let key = &lease.turn().expect("an ordered queue hands out turns").key;
        self.keys.get_mut(key).expect("it was staged")
    }
}

impl Key {
    fn fate(&mut self, lease: &Lease) -> &mut Fate {
        let message = self.messages.iter_mut().find(|(id, _)| *id == lease.id());
        &mut message.expect("it was staged").1
    }
}

/// A checker that has never failed proves nothing.
#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::helpers::{fresh_id, key, minutes, queue};
    use postrider_core::{Message, Reason, lease::Turn};
    use std::time::SystemTime;

    #[test]
    fn a_sound_history_passes() {
        let (mut truth, ids) = staged(OnFailure::Skip, 4);
        let first = turn(&ids[..2]);
        truth.delivered(&first);
        settle(&mut truth, &[first[0].lease.done(), first[1].lease.retry(minutes(1), "busy")], &[]);
        let again = turn(&ids[1..2]);
        truth.delivered(&again);
        settle(&mut truth, &[again[0].lease.dead(Reason::Rejected, "refused")], &[]);
        let late = turn(&ids[2..]);
        truth.delivered(&late);
        truth.lapse();
        let head = turn(&ids[2..3]);
        truth.delivered(&head);
        let batch = [late[0].lease.done(), late[1].lease.done()];
        truth.settling(&batch, 0);
        truth.settled(&batch, &[late[0].lease.clone(), late[1].lease.clone()], 0);
        truth.settling(&[head[0].lease.done()], 1);
        truth.delivered(&turn(&ids[3..]));
        truth.settled(&[head[0].lease.done()], &[], 1);
        assert_eq!((truth.ended(), truth.dead().len(), truth.tally.lost), (3, 1, 2));
    }

    #[test]
    #[should_panic(expected = "is in two hands")]
    fn two_turns_of_one_key_are_found() {
        let (mut truth, ids) = staged(OnFailure::Block, 2);
        truth.delivered(&turn(&ids[..1]));
        truth.delivered(&turn(&ids[..1]));
    }

    #[test]
    #[should_panic(expected = "was overtaken")]
    fn an_overtaken_message_is_found() {
        let (mut truth, ids) = staged(OnFailure::Block, 2);
        truth.delivered(&turn(&ids[1..]));
    }

    #[test]
    #[should_panic(expected = "follow each other")]
    fn a_gap_in_a_turn_is_found() {
        let (mut truth, ids) = staged(OnFailure::Block, 3);
        truth.delivered(&turn(&[ids[0], ids[2]]));
    }

    #[test]
    #[should_panic(expected = "was handed out after it had ended")]
    fn a_delivery_after_the_end_is_found() {
        let (mut truth, ids) = staged(OnFailure::Block, 2);
        let first = turn(&ids[..1]);
        truth.delivered(&first);
        settle(&mut truth, &[first[0].lease.done()], &[]);
        truth.delivered(&turn(&ids[..1]));
    }

    #[test]
    #[should_panic(expected = "under a living lease was lost")]
    fn a_lost_settlement_under_a_living_lease_is_found() {
        let (mut truth, ids) = staged(OnFailure::Block, 1);
        let first = turn(&ids);
        truth.delivered(&first);
        settle(&mut truth, &[first[0].lease.done()], &[first[0].lease.clone()]);
    }

    #[test]
    #[should_panic(expected = "ended in the hands of its old owner")]
    fn a_stale_settlement_that_counts_is_found() {
        let (mut truth, ids) = staged(OnFailure::Block, 1);
        let stale = turn(&ids);
        truth.delivered(&stale);
        truth.lapse();
        truth.delivered(&turn(&ids));
        settle(&mut truth, &[stale[0].lease.done()], &[]);
    }

    #[test]
    #[should_panic(expected = "its end was lost")]
    fn a_delivery_that_relied_on_a_lost_end_is_found() {
        let (mut truth, ids) = staged(OnFailure::Block, 2);
        let stale = turn(&ids[..1]);
        truth.delivered(&stale);
        truth.lapse();
        truth.settling(&[stale[0].lease.done()], 0);
        truth.delivered(&turn(&ids[1..]));
        truth.settled(&[stale[0].lease.done()], &[stale[0].lease.clone()], 0);
    }

    fn staged(policy: OnFailure, count: usize) -> (Truth, Vec<MessageId>) {
        let mut truth = Truth::new(policy);
        let ids: Vec<_> = (0..count).map(|_| fresh_id()).collect();
        for id in &ids {
            truth.staged(&key("key"), *id);
        }
        (truth, ids)
    }

    fn settle(truth: &mut Truth, batch: &[Settle], lost: &[Lease]) {
        truth.settling(batch, 0);
        truth.settled(batch, lost, 0);
    }

    fn turn(ids: &[MessageId]) -> Vec<Claimed> {
        let token = LeaseToken::fresh();
        let claimed = |(at, id): (usize, &MessageId)| Claimed {
            message: Message::builder("orders").key("key").build().unwrap().identified(*id),
            lease: Lease::new(queue("orders"), *id, token).in_turn(Turn {
                key: key("key"),
                place: 0,
                last: at + 1 == ids.len(),
            }),
            deliveries: 1,
            attempts: 0,
            staged_at: SystemTime::UNIX_EPOCH,
            due_at: SystemTime::UNIX_EPOCH,
        };
        ids.iter().enumerate().map(claimed).collect()
    }
}
