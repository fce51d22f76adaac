//! The messages that workers have in flight, as the test store sees them.

use crate::Fault;
use postrider_core::{ClaimedMessage, Lease, LeaseToken, Message, MessageId, OrderingKey};
use std::{
    collections::{HashMap, HashSet},
    time::SystemTime,
};

#[derive(Debug, Default)]
pub(crate) struct Claims {
    open: HashMap<MessageId, Claim>,
    /// Turns of keys that lost the lease of one of their messages.
    lost_turns: HashSet<(LeaseToken, OrderingKey)>,
    delivered: Vec<Message>,
}

#[derive(Debug)]
pub(crate) struct Claim {
    pub(crate) message: Message,
    pub(crate) token: LeaseToken,
    pub(crate) until: SystemTime,
    pub(crate) fault: Option<Fault>,
    /// It was settled as done in a transaction, which may not have committed yet.
    pub(crate) settled_in_transaction: bool,
}

impl Claims {
    pub(crate) fn insert(&mut self, claimed: &ClaimedMessage, until: SystemTime, fault: Option<Fault>) {
        let (message, token) = (claimed.message.clone(), claimed.lease.token());
        self.open.insert(claimed.id(), Claim { message, token, until, fault, settled_in_transaction: false });
    }

    pub(crate) fn get_mut(&mut self, lease: &Lease) -> Option<&mut Claim> {
        self.open.get_mut(&lease.id()).filter(|claim| claim.token == lease.token())
    }

    pub(crate) fn fault_of(&self, id: MessageId) -> Option<Fault> {
        self.open.get(&id)?.fault
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (MessageId, &Claim)> {
        self.open.iter().map(|(id, claim)| (*id, claim))
    }

    /// Whether a planned fault makes this settlement too late. Later settlements of the same turn are too late as well. The
    /// message stays leased until its lease expires.
    pub(crate) fn lose_by_fault(&mut self, lease: &Lease) -> bool {
        let turn = lease.turn().map(|turn| (lease.token(), turn.key.clone()));
        let is_faulty = self.get_mut(lease).is_some_and(|claim| claim.fault == Some(Fault::LoseLease));
        if let (Some(turn), true) = (&turn, is_faulty) {
            self.lost_turns.insert(turn.clone());
        }
        is_faulty || turn.is_some_and(|turn| self.lost_turns.contains(&turn))
    }

    /// Removes a claim that was settled, and records the delivery.
    pub(crate) fn end(&mut self, id: MessageId, is_delivered: bool) {
        if let Some(claim) = self.open.remove(&id)
            && is_delivered
        {
            self.delivered.push(claim.message);
        }
    }

    pub(crate) fn delivered(&self) -> &[Message] {
        &self.delivered
    }
}
