//! The model of an ordered queue under stress, against which every delivery is checked.
//!
//! The model is in memory and learns of everything before the store does: of a message before it is committed, of a settlement
//! before it is sent. So every claim can be checked at once:
//!
//! - a key has no other owner;
//! - every earlier message of the key is settled, and no settled message is redelivered;
//! - the messages of a turn are consecutive, and the last is marked;
//! - a settlement under a valid lease is never lost; a settlement after a new owner's claim always is.
//!
//! **Generations.** When the clock moves, every lease expires at once, and every message in flight counts as crashed: its owner may
//! settle it only if no one has reclaimed it since. The test moves the clock only while no call to the store is running, so every
//! claim belongs to one generation.

use postrider_core::{
    ClaimedMessage, Lease, LeaseSettlement, LeaseToken, MessageId, OnFailure, OrderingKey, Settlement,
};
use std::collections::{HashMap, HashSet};

#[derive(Debug)]
pub(crate) struct OrderingModel {
    policy: OnFailure,
    generation: u64,
    keys: HashMap<OrderingKey, Key>,
    ended: usize,
    dead: HashSet<MessageId>,
    /// Consecutive empty claims without any other event.
    idle: usize,
    pub(crate) counts: ModelCounts,
}

/// The events of a run, to show that it had enough of each.
#[derive(Debug, Default)]
pub(crate) struct ModelCounts {
    pub(crate) deliveries: usize,
    pub(crate) failures: usize,
    pub(crate) crashes: usize,
    pub(crate) lost: usize,
    pub(crate) released: usize,
}

#[derive(Debug, Default)]
struct Key {
    /// In staging order.
    messages: Vec<(MessageId, MessageState)>,
    owner: Option<Owner>,
}

/// A turn: the token of its claim, and the generation it was claimed in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Owner {
    token: LeaseToken,
    generation: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MessageState {
    Pending,
    /// Its owner is about to settle it. Until the call returns, both outcomes are possible.
    Settling {
        by: Owner,
        /// A later message was claimed, so this one must be settled.
        relied_on: bool,
        /// It was redelivered, so it cannot be settled.
        redelivered: bool,
    },
    Settled,
}

impl OrderingModel {
    pub(crate) fn new(policy: OnFailure) -> Self {
        Self {
            policy,
            generation: 0,
            keys: HashMap::new(),
            ended: 0,
            dead: HashSet::new(),
            idle: 0,
            counts: ModelCounts::default(),
        }
    }

    /// A message is about to be committed.
    pub(crate) fn staged(&mut self, key: &OrderingKey, id: MessageId) {
        self.keys.entry(key.clone()).or_default().messages.push((id, MessageState::Pending));
    }

    /// Checks a claim, and returns its generation.
    pub(crate) fn delivered(&mut self, claimed: &[ClaimedMessage]) -> u64 {
        let mut keys = Vec::new();
        for each in claimed {
            let key = &each.lease.turn().expect("an ordered queue has turns").key;
            if !keys.contains(&key) {
                keys.push(key);
            }
        }
        for key in keys {
            let is_of_key = |each: &&ClaimedMessage| each.lease.turn().is_some_and(|turn| turn.key == *key);
            self.begin_turn(key, &claimed.iter().filter(is_of_key).collect::<Vec<_>>());
        }
        self.counts.deliveries += claimed.len();
        self.idle = if claimed.is_empty() { self.idle + 1 } else { 0 };
        self.generation
    }

    fn begin_turn(&mut self, name: &OrderingKey, turn: &[&ClaimedMessage]) {
        let generation = self.generation;
        let key = self.keys.get_mut(name).unwrap_or_else(|| panic!("{name} was never staged"));
        let in_flight = key.owner.is_some_and(|owner| owner.generation == generation);
        assert!(!in_flight, "{name} has two owners");
        let by = Owner { token: turn[0].lease.token(), generation };
        key.owner = Some(by);

        let position = |id| key.messages.iter().position(|(staged, _)| *staged == id);
        let head = position(turn[0].id()).unwrap_or_else(|| panic!("{} was never staged", turn[0].id()));
        for (id, state) in &mut key.messages[..head] {
            match state {
                MessageState::Pending => panic!("{id} of {name} was overtaken by {}", turn[0].id()),
                MessageState::Settling { relied_on, .. } => *relied_on = true,
                MessageState::Settled => {}
            }
        }
        for (at, claimed) in turn.iter().enumerate() {
            let (id, state) =
                key.messages.get_mut(head + at).expect("a turn has no more messages than its key");
            assert_eq!(claimed.id(), *id, "the messages of a turn of {name} are consecutive");
            assert_eq!(claimed.lease.token(), by.token, "a turn of {name} has one token");
            let last = claimed.lease.turn().is_some_and(|turn| turn.last);
            assert_eq!(last, at + 1 == turn.len(), "exactly the last message of a turn of {name} is marked");
            match state {
                MessageState::Pending => {}
                MessageState::Settling { by, redelivered, .. } => {
                    assert!(
                        by.generation < generation,
                        "{id} of {name} was claimed while its owner settled it"
                    );
                    *redelivered = true;
                }
                MessageState::Settled => panic!("{id} of {name} was claimed after its settlement"),
            }
        }
    }

    /// Settlements for a claim of this generation are about to be sent.
    pub(crate) fn settling(&mut self, batch: &[LeaseSettlement], generation: u64) {
        for settle in batch {
            let by = Owner { token: settle.lease.token(), generation };
            let failed = matches!(settle.settlement, Settlement::Retry { .. } | Settlement::Dead { .. });
            self.counts.failures += usize::from(failed);
            let ends_message = self.ends_message(&settle.settlement);
            let key = self.key_of(&settle.lease);
            if key.owner != Some(by) {
                continue; // Somebody else has taken it, so this will be lost; or its turn has just failed.
            }
            if ends_message {
                *key.state(&settle.lease) =
                    MessageState::Settling { by, relied_on: false, redelivered: false };
            }
            if failed || settle.lease.turn().is_some_and(|turn| turn.last) {
                key.owner = None;
            }
        }
    }

    /// Checks the result of these settlements.
    pub(crate) fn settled(&mut self, batch: &[LeaseSettlement], lost: &[Lease], generation: u64) {
        self.idle = 0;
        let is_live = generation == self.generation;
        let lost: HashSet<_> = lost.iter().collect();
        for settle in batch {
            let is_lost = lost.contains(&settle.lease);
            let is_release = settle.settlement == Settlement::Release;
            let id = settle.lease.id();
            // A failure releases the messages behind it; a settlement of those may be lost.
            assert!(
                !(is_live && is_lost && !is_release),
                "a settlement of {id} under a valid lease was lost"
            );
            self.counts.lost += usize::from(is_lost && !is_release);
            if !self.ends_message(&settle.settlement) {
                continue;
            }
            let by = Owner { token: settle.lease.token(), generation };
            let state = self.key_of(&settle.lease).state(&settle.lease);
            match *state {
                MessageState::Settling { by: owner, relied_on, redelivered } if owner == by => {
                    assert!(!(is_lost && relied_on), "{id} was overtaken: its settlement was lost");
                    assert!(is_lost || !redelivered, "{id} was settled by its old owner");
                    *state = if is_lost { MessageState::Pending } else { MessageState::Settled };
                }
                _ => assert!(is_lost, "{id} was settled by its old owner"),
            }
            if !is_lost {
                self.ended += 1;
                if settle.settlement != Settlement::Done {
                    assert!(self.dead.insert(id), "{id} was dead-lettered twice");
                }
            }
        }
    }

    /// A claimer dropped its messages in flight.
    pub(crate) fn crashed(&mut self) {
        self.counts.crashes += 1;
    }

    /// An operator released a key.
    pub(crate) fn released(&mut self) {
        self.counts.released += 1;
        self.idle = 0;
    }

    /// Every lease is about to expire.
    pub(crate) fn expire_leases(&mut self) {
        self.generation += 1;
        self.idle = 0;
    }

    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// The number of consecutive empty claims without any other event.
    pub(crate) fn idle(&self) -> usize {
        self.idle
    }

    pub(crate) fn ended(&self) -> usize {
        self.ended
    }

    pub(crate) fn dead(&self) -> &HashSet<MessageId> {
        &self.dead
    }

    /// Whether this settlement removes the message from its key.
    fn ends_message(&self, settlement: &Settlement) -> bool {
        match settlement {
            Settlement::Done | Settlement::Forward { .. } => true,
            Settlement::Dead { .. } => self.policy == OnFailure::Skip,
            Settlement::Retry { .. } | Settlement::Release | Settlement::Snooze { .. } => false,
        }
    }

    fn key_of(&mut self, lease: &Lease) -> &mut Key {
        let key = &lease.turn().expect("an ordered queue has turns").key;
        self.keys.get_mut(key).expect("it was staged")
    }
}

impl Key {
    fn state(&mut self, lease: &Lease) -> &mut MessageState {
        let message = self.messages.iter_mut().find(|(id, _)| *id == lease.id());
        &mut message.expect("it was staged").1
    }
}

/// Negative controls: a checker that has never failed proves nothing.
#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::helpers::{fresh_id, key, minutes, queue};
    use postrider_core::{Message, Reason, lease::Turn};
    use std::time::SystemTime;

    #[test]
    fn a_valid_history_passes() {
        let (mut model, ids) = staged(OnFailure::Skip, 4);
        let first = turn(&ids[..2]);
        model.delivered(&first);
        settle(&mut model, &[first[0].lease.done(), first[1].lease.retry(minutes(1), "busy")], &[]);
        let again = turn(&ids[1..2]);
        model.delivered(&again);
        settle(&mut model, &[again[0].lease.dead(Reason::Rejected, "refused")], &[]);
        let late = turn(&ids[2..]);
        model.delivered(&late);
        model.expire_leases();
        let head = turn(&ids[2..3]);
        model.delivered(&head);
        let batch = [late[0].lease.done(), late[1].lease.done()];
        model.settling(&batch, 0);
        model.settled(&batch, &[late[0].lease.clone(), late[1].lease.clone()], 0);
        model.settling(&[head[0].lease.done()], 1);
        model.delivered(&turn(&ids[3..]));
        model.settled(&[head[0].lease.done()], &[], 1);
        assert_eq!((model.ended(), model.dead().len(), model.counts.lost), (3, 1, 2));
    }

    #[test]
    #[should_panic(expected = "has two owners")]
    fn two_turns_of_one_key_are_detected() {
        let (mut model, ids) = staged(OnFailure::Block, 2);
        model.delivered(&turn(&ids[..1]));
        model.delivered(&turn(&ids[..1]));
    }

    #[test]
    #[should_panic(expected = "was overtaken")]
    fn an_overtaken_message_is_detected() {
        let (mut model, ids) = staged(OnFailure::Block, 2);
        model.delivered(&turn(&ids[1..]));
    }

    #[test]
    #[should_panic(expected = "are consecutive")]
    fn a_gap_in_a_turn_is_detected() {
        let (mut model, ids) = staged(OnFailure::Block, 3);
        model.delivered(&turn(&[ids[0], ids[2]]));
    }

    #[test]
    #[should_panic(expected = "was claimed after its settlement")]
    fn a_delivery_after_the_settlement_is_detected() {
        let (mut model, ids) = staged(OnFailure::Block, 2);
        let first = turn(&ids[..1]);
        model.delivered(&first);
        settle(&mut model, &[first[0].lease.done()], &[]);
        model.delivered(&turn(&ids[..1]));
    }

    #[test]
    #[should_panic(expected = "under a valid lease was lost")]
    fn a_lost_settlement_under_a_valid_lease_is_detected() {
        let (mut model, ids) = staged(OnFailure::Block, 1);
        let first = turn(&ids);
        model.delivered(&first);
        settle(&mut model, &[first[0].lease.done()], &[first[0].lease.clone()]);
    }

    #[test]
    #[should_panic(expected = "was settled by its old owner")]
    fn an_effective_stale_settlement_is_detected() {
        let (mut model, ids) = staged(OnFailure::Block, 1);
        let stale = turn(&ids);
        model.delivered(&stale);
        model.expire_leases();
        model.delivered(&turn(&ids));
        settle(&mut model, &[stale[0].lease.done()], &[]);
    }

    #[test]
    #[should_panic(expected = "its settlement was lost")]
    fn a_delivery_after_a_lost_settlement_is_detected() {
        let (mut model, ids) = staged(OnFailure::Block, 2);
        let stale = turn(&ids[..1]);
        model.delivered(&stale);
        model.expire_leases();
        model.settling(&[stale[0].lease.done()], 0);
        model.delivered(&turn(&ids[1..]));
        model.settled(&[stale[0].lease.done()], &[stale[0].lease.clone()], 0);
    }

    fn staged(policy: OnFailure, count: usize) -> (OrderingModel, Vec<MessageId>) {
        let mut model = OrderingModel::new(policy);
        let ids: Vec<_> = (0..count).map(|_| fresh_id()).collect();
        for id in &ids {
            model.staged(&key("key"), *id);
        }
        (model, ids)
    }

    fn settle(model: &mut OrderingModel, batch: &[LeaseSettlement], lost: &[Lease]) {
        model.settling(batch, 0);
        model.settled(batch, lost, 0);
    }

    fn turn(ids: &[MessageId]) -> Vec<ClaimedMessage> {
        let token = LeaseToken::fresh();
        let claimed = |(at, id): (usize, &MessageId)| ClaimedMessage {
            message: Message::builder("orders").key("key").build().unwrap().identified(*id),
            lease: Lease::new(queue("orders"), *id, token).in_turn(Turn {
                key: key("key"),
                position: 0,
                last: at + 1 == ids.len(),
            }),
            deliveries: 1,
            attempts: 0,
            isolated: 0,
            staged_at: SystemTime::UNIX_EPOCH,
            due_at: SystemTime::UNIX_EPOCH,
            claimed_at: SystemTime::UNIX_EPOCH,
            first_failed_at: None,
        };
        ids.iter().enumerate().map(claimed).collect()
    }
}
