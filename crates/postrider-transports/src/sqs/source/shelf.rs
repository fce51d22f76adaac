//! What was fetched and not answered yet.

use crate::aws::Trouble;
use aws_sdk_sqs::types::Message;
use postrider_core::{Lane, Parcel};
use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};
use tokio::time::Instant;

/// The state of a source.
#[derive(Default)]
pub(super) struct Shelf {
    /// What was fetched and not given to anybody, in its order.
    pub(super) ready: VecDeque<Fetched>,
    /// What was given and not answered, and until when it is ours.
    pub(super) in_hand: BTreeMap<u64, (Instant, Arc<Held>)>,
    pub(super) next: u64,
    /// Requests that wait for messages.
    pub(super) fetching: usize,
    /// What the last of them met, until somebody is told.
    pub(super) trouble: Option<Trouble>,
    pub(super) is_closed: bool,
}

/// A message, ready to be given.
pub(super) struct Fetched {
    pub(super) parcel: Parcel,
    pub(super) held: Arc<Held>,
}

/// What a ticket stands for.
pub(super) struct Held {
    pub(super) number: u64,
    pub(super) handle: Arc<str>,
    pub(super) lane: Option<Lane>,
    pub(super) since: Instant,
    /// As it came, where it may have to be sent elsewhere.
    pub(super) message: Option<Message>,
    pub(super) is_answered: AtomicBool,
}

impl Shelf {
    /// Gives up to `most`. What has waited for more than half of its time is left to come again: whoever got it would lose it soon.
    pub(super) fn give(&mut self, most: usize, hold: Duration) -> Vec<Parcel> {
        self.ready.retain(|fetched| fetched.held.since.elapsed() < hold / 2);
        let given = self.ready.drain(..most.min(self.ready.len()));
        let mut parcels = Vec::with_capacity(given.len());
        for Fetched { parcel, held } in given {
            self.in_hand.insert(held.number, (held.since + hold, held));
            parcels.push(parcel);
        }
        parcels
    }

    /// Takes back what was fetched behind a message of these lanes.
    pub(super) fn take_behind(&mut self, lane: Lane) -> Vec<Arc<Held>> {
        let mut taken = Vec::new();
        self.ready.retain(|fetched| {
            let is_behind = fetched.held.lane == Some(lane);
            if is_behind {
                taken.push(Arc::clone(&fetched.held));
            }
            !is_behind
        });
        taken
    }

    /// Everything that is ours.
    pub(super) fn clear(&mut self) -> Vec<Arc<Held>> {
        let ready = self.ready.drain(..).map(|fetched| fetched.held);
        std::mem::take(&mut self.in_hand).into_values().map(|(_, held)| held).chain(ready).collect()
    }
}

impl fmt::Debug for Shelf {
    /// Shows no payload: it may carry personal data.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shelf").field("in_hand", &self.in_hand.len()).finish_non_exhaustive()
    }
}
