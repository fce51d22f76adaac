//! Messages that were received from the queue and are not acked yet: prefetched or in flight.

use crate::aws::ServiceError;
use aws_sdk_sqs::types::Message;
use postrider_core::{LaneId, ReceivedMessage};
use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};
use tokio::time::Instant;

/// The state of a source.
#[derive(Default)]
pub(super) struct SourceState {
    /// Messages that no consumer has taken yet, in their order.
    pub(super) prefetched: VecDeque<PrefetchedMessage>,
    /// Messages that were taken and not acked, with the end of their visibility timeout.
    pub(super) in_flight: BTreeMap<u64, (Instant, Arc<InFlightMessage>)>,
    pub(super) next_number: u64,
    /// The number of receive requests that are running.
    pub(super) fetching: usize,
    /// The error of the last receive request, until it is returned.
    pub(super) error: Option<ServiceError>,
    pub(super) is_closed: bool,
}

/// A message that no consumer has taken yet.
pub(super) struct PrefetchedMessage {
    pub(super) received: ReceivedMessage,
    pub(super) message: Arc<InFlightMessage>,
}

/// The message behind an ack handle.
pub(super) struct InFlightMessage {
    pub(super) number: u64,
    pub(super) receipt_handle: Arc<str>,
    pub(super) lane: Option<LaneId>,
    pub(super) received_at: Instant,
    /// The original message, kept if a rejected message is sent to another queue.
    pub(super) original: Option<Message>,
    pub(super) is_acked: AtomicBool,
}

impl SourceState {
    /// Takes up to `limit` messages. Messages that waited for more than half of their visibility timeout are dropped, and redelivered when it
    /// expires: a consumer would lose them soon.
    pub(super) fn take(&mut self, limit: usize, visibility_timeout: Duration) -> Vec<ReceivedMessage> {
        self.prefetched.retain(|fetched| fetched.message.received_at.elapsed() < visibility_timeout / 2);
        let taken = self.prefetched.drain(..limit.min(self.prefetched.len()));
        let mut messages = Vec::with_capacity(taken.len());
        for PrefetchedMessage { received, message } in taken {
            self.in_flight.insert(message.number, (message.received_at + visibility_timeout, message));
            messages.push(received);
        }
        messages
    }

    /// Removes the prefetched messages of a lane.
    pub(super) fn take_lane(&mut self, lane: LaneId) -> Vec<Arc<InFlightMessage>> {
        let mut taken = Vec::new();
        self.prefetched.retain(|fetched| {
            let is_behind = fetched.message.lane == Some(lane);
            if is_behind {
                taken.push(Arc::clone(&fetched.message));
            }
            !is_behind
        });
        taken
    }

    /// Removes all messages, prefetched and in flight.
    pub(super) fn clear(&mut self) -> Vec<Arc<InFlightMessage>> {
        let prefetched = self.prefetched.drain(..).map(|fetched| fetched.message);
        std::mem::take(&mut self.in_flight)
            .into_values()
            .map(|(_, message)| message)
            .chain(prefetched)
            .collect()
    }
}

impl fmt::Debug for SourceState {
    /// Omits payloads: they may contain personal data.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SourceState").field("in_flight", &self.in_flight.len()).finish_non_exhaustive()
    }
}
