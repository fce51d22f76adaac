//! Receiving messages, and extending their ack deadlines.

use super::{
    in_flight::InFlightMessage,
    processor::{ConsumerState, Processor},
};
use crate::delivery_loop::backoff::Backoff;
use postrider_core::{SourceError, TxBackend};
use std::{
    sync::{Arc, PoisonError, atomic::Ordering::SeqCst},
    time::Duration,
};
use tokio::time::{Instant, sleep};

/// The maximum number of messages per receive call.
const MAX_RECEIVE: usize = 1_000;
/// The first backoff after the source failed.
pub(super) const FIRST_BACKOFF: Duration = Duration::from_millis(100);

impl<R: TxBackend> Processor<R> {
    /// The receive loop. It runs until the consumer stops.
    pub(super) async fn receive(self: Arc<Self>, state: Arc<ConsumerState>) {
        if !self.start_receiving(&state).await {
            return;
        }
        let (kind, origin) = (self.source.kind(), self.source.origin());
        tracing::info!(
            name: "postrider.consumer_started", consumer = %self.name, kind, origin,
            "consumer {} started, receiving from {kind} {origin}", self.name
        );
        let mut backoff = Backoff::new(FIRST_BACKOFF.min(self.restart_backoff_max), self.restart_backoff_max);
        let mut is_unavailable = false;
        loop {
            let received = tokio::select! {
                biased;
                () = state.stop.cancelled() => return,
                received = self.receive_some(&state) => received,
            };
            match received {
                Ok(messages) => {
                    if std::mem::take(&mut is_unavailable) {
                        tracing::info!(name: "postrider.source_recovered", consumer = %self.name, "source of consumer {} available again", self.name);
                    }
                    backoff =
                        Backoff::new(FIRST_BACKOFF.min(self.restart_backoff_max), self.restart_backoff_max);
                    // Nacked before the next call begins, so that the messages of that call are in order.
                    let to_nack = state.dispatcher.enqueue(messages);
                    self.nack_unstarted(to_nack, &state).await;
                }
                Err(error) => {
                    self.metrics.record_source_failed();
                    if !std::mem::replace(&mut is_unavailable, true) {
                        tracing::warn!(
                            name: "postrider.source_failed", consumer = %self.name, %error,
                            "source of consumer {} unavailable: {error}; retrying with backoff", self.name
                        );
                    }
                    tokio::select! {
                        () = sleep(backoff.next_delay()) => {}
                        () = state.stop.cancelled() => return,
                    }
                }
            }
        }
    }

    /// Receives as many messages as there are free slots.
    pub(super) async fn receive_some(
        &self,
        state: &ConsumerState,
    ) -> Result<Vec<InFlightMessage>, SourceError> {
        // Slots are only ever taken here.
        let Ok(one) = state.free_slots.acquire().await else { return Ok(Vec::new()) };
        let max = (state.free_slots.available_permits() + 1).min(MAX_RECEIVE);
        drop(one);
        let call = state.calls.fetch_add(1, SeqCst) + 1;
        let received = self.source.receive(max).await?;
        state.free_slots.forget_permits(received.len());
        self.metrics.record_received(received.len());
        *state.last_received_at.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        let mut messages: Vec<InFlightMessage> = received
            .into_iter()
            .map(|message| InFlightMessage::decode(message, &self.decoder, call))
            .collect();
        if self.capabilities.ack_deadline.is_some() {
            state.start_extending(&mut messages);
        }
        self.metrics
            .record_in_flight(self.prefetch - state.free_slots.available_permits().min(self.prefetch));
        Ok(messages)
    }

    /// The loop that extends the ack deadlines of messages in flight.
    pub(super) async fn extend(self: Arc<Self>, state: Arc<ConsumerState>) {
        let Some(ack_deadline) = self.capabilities.ack_deadline else { return };
        loop {
            sleep(ack_deadline / 3).await;
            let ack_handles = state.ack_handles();
            if ack_handles.is_empty() {
                continue;
            }
            let failed = self.source.extend(&ack_handles).await.into_iter().filter_map(Result::err);
            // The message was acked meanwhile, or it is redelivered and recognised as a duplicate.
            for error in failed {
                tracing::debug!(
                    name: "postrider.extend_failed", consumer = %self.name, %error,
                    "ack deadline of a message of consumer {} not extended: {error}; it may be redelivered", self.name
                );
            }
        }
    }
}
