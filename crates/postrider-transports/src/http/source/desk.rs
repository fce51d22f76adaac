//! Where requests wait: for a consumer that takes their messages, and then for its answer.
//!
//! A request is at the desk from the moment it was believed until it was answered or its sender has gone. Nothing outlives its request:
//! whoever is not told the end sends again.

use postrider_core::{Answer, Incoming};
use std::{
    collections::{BTreeMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tokio::sync::{Notify, oneshot};

/// The desk of one source.
#[derive(Debug)]
pub(super) struct Desk {
    most: usize,
    shelf: Mutex<Shelf>,
    /// Somebody came, or it was closed.
    pub(super) change: Notify,
}

#[derive(Default)]
struct Shelf {
    next: u64,
    /// What nobody has taken yet, in the order in which it came.
    waiting: BTreeMap<u64, Incoming>,
    /// All that are here, taken or not.
    senders: BTreeMap<u64, Sender>,
    /// The names of those that have one.
    ids: HashSet<String>,
    is_closed: bool,
}

struct Sender {
    id: Option<String>,
    tell: oneshot::Sender<Answer>,
}

/// Why a request may not wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TurnedAway {
    Closed,
    Full,
    /// A request with the same id waits already.
    Twin,
}

/// A request's place. Dropping it, as a server does when its client has gone, takes the message away from the desk.
#[derive(Debug)]
pub(super) struct Visit {
    desk: Arc<Desk>,
    number: u64,
    told: oneshot::Receiver<Answer>,
}

impl Desk {
    pub(super) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most, shelf: Mutex::default(), change: Notify::new() })
    }

    /// Lets a message wait for its answer.
    pub(super) fn enter(self: &Arc<Self>, incoming: Incoming) -> Result<Visit, TurnedAway> {
        let mut shelf = self.lock();
        if shelf.is_closed {
            return Err(TurnedAway::Closed);
        }
        if incoming.id.as_ref().is_some_and(|id| shelf.ids.contains(id)) {
            return Err(TurnedAway::Twin);
        }
        if shelf.senders.len() >= self.most {
            return Err(TurnedAway::Full);
        }
        let (number, (tell, told)) = (shelf.next, oneshot::channel());
        shelf.next += 1;
        shelf.ids.extend(incoming.id.clone());
        shelf.senders.insert(number, Sender { id: incoming.id.clone(), tell });
        shelf.waiting.insert(number, incoming);
        drop(shelf);
        self.change.notify_waiters();
        Ok(Visit { desk: Arc::clone(self), number, told })
    }

    /// Up to `most` of those that wait, by their numbers; nothing once it was closed.
    pub(super) fn take(&self, most: usize) -> Option<Vec<(u64, Incoming)>> {
        let mut shelf = self.lock();
        let mut take = || shelf.waiting.pop_first();
        let taken = std::iter::from_fn(&mut take).take(most).collect();
        (!shelf.is_closed).then_some(taken)
    }

    /// Whether the sender could be told.
    pub(super) fn tell(&self, number: u64, answer: Answer) -> bool {
        let sender = self.lock().remove(number);
        sender.is_some_and(|sender| sender.tell.send(answer).is_ok())
    }

    /// Whether its sender still waits.
    pub(super) fn has(&self, number: u64) -> bool {
        self.lock().senders.contains_key(&number)
    }

    /// Sends everybody away, and whoever comes.
    pub(super) fn close(&self) {
        *self.lock() = Shelf { is_closed: true, ..Shelf::default() };
        self.change.notify_waiters();
    }

    pub(super) fn is_closed(&self) -> bool {
        self.lock().is_closed
    }

    fn lock(&self) -> MutexGuard<'_, Shelf> {
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shelf {
    fn remove(&mut self, number: u64) -> Option<Sender> {
        self.waiting.remove(&number);
        let sender = self.senders.remove(&number)?;
        if let Some(id) = &sender.id {
            self.ids.remove(id);
        }
        Some(sender)
    }
}

impl Visit {
    /// What became of the message; nothing when the source was closed before anybody said.
    pub(super) async fn answer(mut self) -> Option<Answer> {
        (&mut self.told).await.ok()
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        self.desk.lock().remove(self.number);
    }
}

impl std::fmt::Debug for Shelf {
    /// Shows no payload: it may carry personal data.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shelf").field("waiting", &self.waiting.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(id: &str) -> Incoming {
        let mut incoming = Incoming::new("/hooks", "17");
        incoming.id = Some(id.to_owned());
        incoming
    }

    #[test]
    fn whoever_goes_takes_everything_along() {
        let desk = Desk::new(2);
        drop(desk.enter(named("A-1")).unwrap());
        assert_eq!(desk.take(10), Some(Vec::new()), "nobody is given what nobody waits for");
        let visit = desk.enter(named("A-1")).unwrap();
        let number = desk.take(10).unwrap()[0].0;
        assert_eq!(desk.enter(named("A-1")).unwrap_err(), TurnedAway::Twin);
        drop(visit);
        assert!(!desk.has(number) && !desk.tell(number, Answer::Done));
        // Its successor is somebody else.
        let _next = desk.enter(named("A-1")).unwrap();
        assert!(!desk.tell(number, Answer::Done));
        assert_eq!(desk.take(10).unwrap().len(), 1);
    }

    #[test]
    fn whoever_was_answered_has_left() {
        let desk = Desk::new(1);
        let answered = desk.enter(named("A-1")).unwrap();
        assert_eq!(desk.enter(named("A-2")).unwrap_err(), TurnedAway::Full);
        let number = desk.take(10).unwrap()[0].0;
        assert!(desk.tell(number, Answer::Done));
        let again = desk.enter(named("A-1")).unwrap();
        drop(answered);
        assert_eq!(desk.enter(named("A-1")).unwrap_err(), TurnedAway::Twin, "the second is still here");
        drop(again);
        desk.close();
        assert_eq!(desk.enter(named("A-1")).unwrap_err(), TurnedAway::Closed);
    }
}
