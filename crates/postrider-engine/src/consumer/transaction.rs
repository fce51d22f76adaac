//! One transaction: admit, handle, commit.

use super::{
    in_flight::{ReceivedDelivery, arrival_of},
    processor::Processor,
};
use crate::{
    failure::{Failure, Next},
    worker::Context,
};
use postrider_core::{Admission, Arrival, DecodedMessage, Error, EventType, TxBackend};
use std::{sync::Arc, time::SystemTime};
use tracing::Instrument;

/// The outcome of a transaction.
pub(super) enum TransactionOutcome {
    /// It was committed; for duplicates that had happened before.
    Committed(Vec<Admission>),
    /// A handler failed, and the transaction was rolled back.
    Failed {
        failure: Failure,
        /// The index of the failed message, where that is certain: no other handler had run in the transaction before.
        failed_index: Option<usize>,
    },
    /// The database is unavailable. Whether the commit happened is unknown; a repetition finds out.
    Unavailable(Error),
}

/// A decoded message to be handled.
#[derive(Debug, Clone, Copy)]
pub(super) struct PendingMessage<'m> {
    pub(super) decoded: &'m DecodedMessage,
    /// Number of deliveries.
    pub(super) deliveries: Option<u32>,
    /// The inbox counts its deliveries.
    pub(super) is_counted: bool,
}

impl<R: TxBackend> Processor<R> {
    /// Handles messages in one transaction, in their order.
    pub(super) async fn run_transaction(&self, messages: &[PendingMessage<'_>]) -> TransactionOutcome {
        match self.try_transaction(messages).await {
            Ok(outcome) => outcome,
            Err(error @ Error::Unavailable(_)) => TransactionOutcome::Unavailable(error),
            // Such as a deferred constraint that fails at the commit. It would fail again and again, so it must count.
            Err(error) => TransactionOutcome::Failed {
                failure: Failure::of_kind(Next::Retry, "TransactionFailed", error),
                failed_index: (messages.len() == 1).then_some(0),
            },
        }
    }

    async fn try_transaction(&self, messages: &[PendingMessage<'_>]) -> Result<TransactionOutcome, Error> {
        let arrivals: Vec<Arrival> = messages.iter().map(|pending| arrival_of(pending.decoded)).collect();
        let mut tx = self.store.begin().await?;
        let admitted = match self.store.admit_in(&mut tx, &self.name, &arrivals).await {
            Ok(admitted) => admitted,
            Err(error) => {
                self.store.rollback(tx).await.ok();
                return Err(error);
            }
        };
        let mut is_first_run = true;
        for (index, pending) in messages.iter().enumerate() {
            if !admitted.get(index).is_some_and(|admitted| admitted.is_first()) {
                continue;
            }
            let (returned, result) = self.handle(tx, pending.decoded, pending.deliveries).await;
            match (returned, result) {
                (Some(returned), Ok(())) => tx = returned,
                (returned, result) => {
                    let failure = result.err().unwrap_or_else(|| Failure::retry("the transaction is gone"));
                    if let Some(returned) = returned {
                        // A failing rollback means that the database is the cause, whatever the handler
                        // reported.
                        self.store.rollback(returned).await?;
                    }
                    return Ok(TransactionOutcome::Failed {
                        failure,
                        failed_index: is_first_run.then_some(index),
                    });
                }
            }
            is_first_run = false;
        }
        if let Err(failure) = self.finish(&mut tx, messages).await? {
            self.store.rollback(tx).await.ok();
            return Ok(TransactionOutcome::Failed {
                failure,
                failed_index: (messages.len() == 1).then_some(0),
            });
        }
        self.store.commit(tx).await?;
        Ok(TransactionOutcome::Committed(admitted))
    }

    /// Checks the transaction before the commit.
    async fn finish(
        &self,
        tx: &mut R::Tx,
        messages: &[PendingMessage<'_>],
    ) -> Result<Result<(), Failure>, Error> {
        match self.store.verify(tx).await {
            Ok(()) => {}
            Err(error @ Error::Unavailable(_)) => return Err(error),
            Err(error) => {
                let text = format!(
                    "the handler ignored a database error, so the transaction cannot commit: {error}"
                );
                return Ok(Err(Failure::of_kind(Next::Retry, "TransactionBroken", text)));
            }
        }
        let counted = messages.iter().filter(|pending| pending.is_counted);
        let counted: Vec<Arrival> = counted.map(|pending| arrival_of(pending.decoded)).collect();
        if !counted.is_empty() {
            self.store.uncount_all(tx, &self.name, &counted).await?;
        }
        Ok(Ok(()))
    }

    pub(super) async fn handle(
        &self,
        tx: R::Tx,
        decoded: &DecodedMessage,
        deliveries: Option<u32>,
    ) -> (Option<R::Tx>, Result<(), Failure>) {
        self.merge_clock(decoded);
        let delivery = Arc::new(ReceivedDelivery::new(decoded, deliveries, self.queue.clone()));
        let span = self.span_of(decoded, deliveries);
        let context = |deadline| Context::new(delivery, Arc::clone(&self.shared), Some(deadline));
        let running = self.handlers.run(tx, context);
        #[cfg(feature = "opentelemetry")]
        let running = crate::trace_link::run_linked(running, &span, decoded.message.trail());
        running.instrument(span).await
    }

    fn span_of(&self, decoded: &DecodedMessage, deliveries: Option<u32>) -> tracing::Span {
        let message = &decoded.message;
        tracing::info_span!(
            "postrider.receive",
            consumer = %self.name,
            message_id = %decoded.id,
            r#type = message.event_type().map(EventType::as_str),
            deliveries,
            correlation = message.trail().correlation_id.as_deref(),
            traceparent = message.trail().traceparent.as_deref(),
        )
    }

    /// Merges the sender's clock: messages that this process stages from now on have a later timestamp.
    fn merge_clock(&self, decoded: &DecodedMessage) {
        let (Some(clock), Some(hlc)) = (&self.clock, decoded.message.trail().hlc) else { return };
        if let Err(error) = clock.merge(hlc, SystemTime::now()) {
            tracing::warn!(
                name: "postrider.clock_drift", message_id = %decoded.id, %error,
                "consumer {}: sender's clock ignored: {error}", self.name
            );
        }
    }
}
