//! What was received and has no answer yet.

use async_nats::Subject;
use postrider_core::Ticket;
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// Messages by their place in the stream, each with the subject on which its latest delivery is answered: one that has come again
/// takes the place of the one before.
#[derive(Debug, Default)]
pub(super) struct InHand(Arc<Mutex<BTreeMap<u64, Subject>>>);

/// What is in a ticket.
#[derive(Debug)]
pub(super) struct Slip {
    /// Whose hand it is.
    hand: Arc<Mutex<BTreeMap<u64, Subject>>>,
    sequence: u64,
    pub(super) reply: Subject,
}

impl InHand {
    pub(super) fn add(&self, sequence: u64, reply: Subject) -> Slip {
        lock(&self.0).insert(sequence, reply.clone());
        Slip { hand: Arc::clone(&self.0), sequence, reply }
    }

    /// What the ticket says, if the message is still in this hand.
    pub(super) fn slip<'t>(&self, ticket: &'t Ticket) -> Option<&'t Slip> {
        let slip = ticket.inside::<Slip>().filter(|slip| Arc::ptr_eq(&slip.hand, &self.0))?;
        slip.is_current(&lock(&self.0)).then_some(slip)
    }

    /// Lets go of everything.
    pub(super) fn drain(&self) -> Vec<Subject> {
        std::mem::take(&mut *lock(&self.0)).into_values().collect()
    }
}

impl Slip {
    /// It is answered.
    pub(super) fn let_go(&self) {
        let mut hand = lock(&self.hand);
        if self.is_current(&hand) {
            hand.remove(&self.sequence);
        }
    }

    fn is_current(&self, hand: &BTreeMap<u64, Subject>) -> bool {
        hand.get(&self.sequence).is_some_and(|reply| *reply == self.reply)
    }
}

impl Drop for Slip {
    /// Nobody can answer it any more.
    fn drop(&mut self) {
        self.let_go();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
