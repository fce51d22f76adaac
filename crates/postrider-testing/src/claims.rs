//! What workers have in hand, as the test store saw it.

use crate::Fault;
use postrider_core::{Claimed, Lease, LeaseToken, Message, MessageId, OrderingKey};
use std::{
    collections::{HashMap, HashSet},
    time::SystemTime,
};

#[derive(Debug, Default)]
pub(crate) struct Claims {
    open: HashMap<MessageId, Claim>,
    /// Turns of keys that were lost with one of their messages.
    lost_turns: HashSet<(LeaseToken, OrderingKey)>,
    delivered: Vec<Message>,
}

#[derive(Debug)]
pub(crate) struct Claim {
    pub(crate) message: Message,
    pub(crate) token: LeaseToken,
    pub(crate) until: SystemTime,
    pub(crate) fault: Option<Fault>,
    /// It ends with a transaction, if that commits.
    pub(crate) ends: bool,
}

impl Claims {
    pub(crate) fn enter(&mut self, claimed: &Claimed, until: SystemTime, fault: Option<Fault>) {
        let (message, token) = (claimed.message.clone(), claimed.lease.token());
        self.open.insert(claimed.id(), Claim { message, token, until, fault, ends: false });
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

    /// Whether a settlement comes too late, because a fault says so. What is behind it in its key's turn is late, too. The message
    /// stays leased until the lease lapses.
    pub(crate) fn is_lost(&mut self, lease: &Lease) -> bool {
        let turn = lease.turn().map(|turn| (lease.token(), turn.key.clone()));
        let is_struck = self.get_mut(lease).is_some_and(|claim| claim.fault == Some(Fault::LoseLease));
        if let (Some(turn), true) = (&turn, is_struck) {
            self.lost_turns.insert(turn.clone());
        }
        is_struck || turn.is_some_and(|turn| self.lost_turns.contains(&turn))
    }

    /// A claim has ended.
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
