//! Requests that wait: for a consumer that takes their messages, and then for its ack.
//!
//! A request is pending from the moment it was authenticated until its response is sent or its client has disconnected. No message outlives
//! its request: a sender without a response retries.

use postrider_core::{Ack, Incoming};
use std::{
    collections::{BTreeMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tokio::sync::{Notify, oneshot};

/// The pending requests of one source.
#[derive(Debug)]
pub(super) struct PendingRequests {
    limit: usize,
    state: Mutex<State>,
    /// Notified when a request arrives, or the source is closed.
    pub(super) change: Notify,
}

#[derive(Default)]
struct State {
    next_number: u64,
    /// Messages that no consumer has taken yet, in the order of their arrival.
    waiting: BTreeMap<u64, Incoming>,
    /// All pending requests, whether their message was taken or not.
    requests: BTreeMap<u64, PendingRequest>,
    /// The webhook ids of the pending requests.
    ids: HashSet<String>,
    is_closed: bool,
}

struct PendingRequest {
    id: Option<String>,
    respond: oneshot::Sender<Ack>,
}

/// The reason why a request cannot be accepted now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NotAccepted {
    Closed,
    Full,
    /// A request with the same id is pending.
    Duplicate,
}

/// A registered request. Dropping it, as a server does when its client has disconnected, removes the message.
#[derive(Debug)]
pub(super) struct RequestGuard {
    pending: Arc<PendingRequests>,
    number: u64,
    ack: oneshot::Receiver<Ack>,
}

impl PendingRequests {
    pub(super) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { limit, state: Mutex::default(), change: Notify::new() })
    }

    /// Registers a request that waits for the ack of its message.
    pub(super) fn register(self: &Arc<Self>, incoming: Incoming) -> Result<RequestGuard, NotAccepted> {
        let mut state = self.lock();
        if state.is_closed {
            return Err(NotAccepted::Closed);
        }
        if incoming.id.as_ref().is_some_and(|id| state.ids.contains(id)) {
            return Err(NotAccepted::Duplicate);
        }
        if state.requests.len() >= self.limit {
            return Err(NotAccepted::Full);
        }
        let (number, (respond, ack)) = (state.next_number, oneshot::channel());
        state.next_number += 1;
        state.ids.extend(incoming.id.clone());
        state.requests.insert(number, PendingRequest { id: incoming.id.clone(), respond });
        state.waiting.insert(number, incoming);
        drop(state);
        self.change.notify_waiters();
        Ok(RequestGuard { pending: Arc::clone(self), number, ack })
    }

    /// Takes up to `limit` waiting messages with the numbers of their requests; `None` when closed.
    pub(super) fn take(&self, limit: usize) -> Option<Vec<(u64, Incoming)>> {
        let mut state = self.lock();
        let mut take = || state.waiting.pop_first();
        let taken = std::iter::from_fn(&mut take).take(limit).collect();
        (!state.is_closed).then_some(taken)
    }

    /// Sends the ack to a request. Returns whether its client was still connected.
    pub(super) fn respond(&self, number: u64, ack: Ack) -> bool {
        let request = self.lock().remove(number);
        request.is_some_and(|request| request.respond.send(ack).is_ok())
    }

    /// Whether a request is still pending.
    pub(super) fn contains(&self, number: u64) -> bool {
        self.lock().requests.contains_key(&number)
    }

    /// Ends all pending requests, and refuses new ones.
    pub(super) fn close(&self) {
        *self.lock() = State { is_closed: true, ..State::default() };
        self.change.notify_waiters();
    }

    pub(super) fn is_closed(&self) -> bool {
        self.lock().is_closed
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn remove(&mut self, number: u64) -> Option<PendingRequest> {
        self.waiting.remove(&number);
        let request = self.requests.remove(&number)?;
        if let Some(id) = &request.id {
            self.ids.remove(id);
        }
        Some(request)
    }
}

impl RequestGuard {
    /// Waits for the ack of the message; `None` if the source was closed before.
    pub(super) async fn ack(mut self) -> Option<Ack> {
        (&mut self.ack).await.ok()
    }
}

impl Drop for RequestGuard {
    fn drop(&mut self) {
        self.pending.lock().remove(self.number);
    }
}

impl std::fmt::Debug for State {
    /// Omits payloads: they may contain personal data.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State").field("waiting", &self.waiting.len()).finish_non_exhaustive()
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
    fn disconnected_request_removes_its_message() {
        let pending = PendingRequests::new(2);
        drop(pending.register(named("A-1")).unwrap());
        assert_eq!(pending.take(10), Some(Vec::new()), "no consumer gets a message without a request");
        let guard = pending.register(named("A-1")).unwrap();
        let number = pending.take(10).unwrap()[0].0;
        assert_eq!(pending.register(named("A-1")).unwrap_err(), NotAccepted::Duplicate);
        drop(guard);
        assert!(!pending.contains(number) && !pending.respond(number, Ack::Ack));
        // The next request with the same id is another one.
        let _next = pending.register(named("A-1")).unwrap();
        assert!(!pending.respond(number, Ack::Ack));
        assert_eq!(pending.take(10).unwrap().len(), 1);
    }

    #[test]
    fn acked_request_frees_its_slot_and_id() {
        let pending = PendingRequests::new(1);
        let answered = pending.register(named("A-1")).unwrap();
        assert_eq!(pending.register(named("A-2")).unwrap_err(), NotAccepted::Full);
        let number = pending.take(10).unwrap()[0].0;
        assert!(pending.respond(number, Ack::Ack));
        let again = pending.register(named("A-1")).unwrap();
        drop(answered);
        assert_eq!(
            pending.register(named("A-1")).unwrap_err(),
            NotAccepted::Duplicate,
            "the second is still pending"
        );
        drop(again);
        pending.close();
        assert_eq!(pending.register(named("A-1")).unwrap_err(), NotAccepted::Closed);
    }
}
