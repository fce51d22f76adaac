//! Holding back a route to one destination until earlier messages are sent.
//!
//! A route that once had several destinations may have left messages in the per-destination queue of the one that it still has.
//! That queue is delivered as well. If the route's own queue is ordered by key, it waits until the other one is empty: a later
//! message of a key would overtake an earlier one. A route with one destination adds nothing to that queue, so once it is empty, it
//! stays empty.
//!
//! An unordered queue does not wait, and costs no check: only a delivery that belongs to the turn of a key asks.

use crate::delivery_loop::{CircuitGate, ClaimPermit, Delivery};
use futures_util::future::BoxFuture;
use postrider_core::{
    Backend, Error, QueueName, Settlement, Store,
    inspect::{ListRequest, StateFilter},
};
use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering::SeqCst},
    },
    time::Duration,
};

/// While the route waits, the queue is checked this often.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);

const UNKNOWN: u8 = 0;
const WAITING: u8 = 1;
const DRAINED: u8 = 2;

/// The circuit of a destination, which permits no claims while the per-destination queue is being drained.
pub(super) struct DrainGate {
    circuit: Arc<dyn CircuitGate>,
    backend: Arc<dyn Backend>,
    /// The per-destination queue.
    queue: QueueName,
    state: AtomicU8,
}

impl DrainGate {
    pub(super) fn new(circuit: Arc<dyn CircuitGate>, backend: Arc<dyn Backend>, queue: QueueName) -> Self {
        Self { circuit, backend, queue, state: AtomicU8::new(UNKNOWN) }
    }

    /// The settlement of a message that must wait.
    pub(super) async fn hold_back(&self, delivery: &Delivery) -> Option<Settlement> {
        let state = self.state.load(SeqCst);
        if state == DRAINED || delivery.claimed.lease.turn().is_none() {
            return None;
        }
        // An error of the store: the next delivery checks again.
        if state == UNKNOWN && self.check().await.unwrap_or(false) {
            return None;
        }
        Some(Settlement::Snooze { after: CHECK_INTERVAL })
    }

    /// Whether the queue is empty. An ordered queue keeps retries and blocked messages among the pending ones.
    async fn check(&self) -> Result<bool, Error> {
        let first = ListRequest::new(self.queue.clone(), StateFilter::Ready).with_limit(1);
        let is_drained = self.backend.list(&first).await?.entries.is_empty();
        let before = self.state.swap(if is_drained { DRAINED } else { WAITING }, SeqCst);
        if before == UNKNOWN && !is_drained {
            tracing::warn!(
                name: "postrider.draining", queue = %self.queue,
                "ordered route waits until queue {} is delivered, which holds earlier messages of its keys", self.queue
            );
        }
        Ok(is_drained)
    }
}

impl CircuitGate for DrainGate {
    fn refresh<'g>(&'g self, store: &'g dyn Store) -> BoxFuture<'g, Result<(), Error>> {
        Box::pin(async move {
            if self.state.load(SeqCst) == WAITING {
                self.check().await?;
            }
            self.circuit.refresh(store).await
        })
    }

    fn acquire(&self) -> ClaimPermit {
        match self.state.load(SeqCst) {
            WAITING => ClaimPermit::Denied(CHECK_INTERVAL),
            _ => self.circuit.acquire(),
        }
    }

    fn release(&self) {
        self.circuit.release();
    }

    fn changed(&self) -> BoxFuture<'_, ()> {
        self.circuit.changed()
    }
}

impl fmt::Debug for DrainGate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DrainGate").field("queue", &self.queue).finish_non_exhaustive()
    }
}
