//! One transaction: admit, handle, commit.

use super::{
    mail::{arrival_of, claimed},
    work::Work,
};
use crate::{
    carry::Delivery,
    failure::{Failure, Next},
    worker::Context,
};
use postrider_core::{Admission, Arrival, Error, EventType, Letter, Receive};
use std::{sync::Arc, time::SystemTime};
use tracing::Instrument;

/// How a transaction ended.
pub(super) enum Attempt {
    /// It was committed; so it was before, for the duplicates.
    Committed(Vec<Admission>),
    /// A handler failed, and it was rolled back.
    Failed {
        failure: Failure,
        /// Whose handler, where that is certain: nothing had run in the transaction before it.
        culprit: Option<usize>,
    },
    /// The database failed. Nobody knows what became of it, and doing it again finds out.
    Unavailable(Error),
}

/// A message that is to be handled.
#[derive(Debug, Clone, Copy)]
pub(super) struct Piece<'m> {
    pub(super) letter: &'m Letter,
    /// How often it was delivered.
    pub(super) deliveries: Option<u32>,
    /// That was counted in the inbox.
    pub(super) is_counted: bool,
}

impl<R: Receive> Work<R> {
    /// Handles messages in one transaction, in their order.
    pub(super) async fn attempt(&self, pieces: &[Piece<'_>]) -> Attempt {
        match self.try_attempt(pieces).await {
            Ok(attempt) => attempt,
            Err(error) => Attempt::Unavailable(error),
        }
    }

    async fn try_attempt(&self, pieces: &[Piece<'_>]) -> Result<Attempt, Error> {
        let arrivals: Vec<Arrival> = pieces.iter().map(|piece| arrival_of(piece.letter)).collect();
        let mut tx = self.store.begin().await?;
        let admitted = match self.store.admit_all(&mut tx, &self.name, &arrivals).await {
            Ok(admitted) => admitted,
            Err(error) => {
                self.store.rollback(tx).await.ok();
                return Err(error);
            }
        };
        let mut culprit = true;
        for (place, piece) in pieces.iter().enumerate() {
            if !admitted.get(place).is_some_and(|admitted| admitted.is_first()) {
                continue;
            }
            let (back, result) = self.handle(tx, piece.letter, piece.deliveries).await;
            match (back, result) {
                (Some(back), Ok(())) => tx = back,
                (back, result) => {
                    let failure = result.err().unwrap_or_else(|| Failure::retry("the transaction is gone"));
                    if let Some(back) = back {
                        // A database that cannot even undo was the reason, whatever the handler made of it.
                        self.store.rollback(back).await?;
                    }
                    return Ok(Attempt::Failed { failure, culprit: culprit.then_some(place) });
                }
            }
            culprit = false;
        }
        if let Err(failure) = self.finish(&mut tx, pieces).await? {
            self.store.rollback(tx).await.ok();
            return Ok(Attempt::Failed { failure, culprit: (pieces.len() == 1).then_some(0) });
        }
        self.store.commit(tx).await?;
        Ok(Attempt::Committed(admitted))
    }

    /// What is left to do before the commit.
    async fn finish(&self, tx: &mut R::Tx, pieces: &[Piece<'_>]) -> Result<Result<(), Failure>, Error> {
        match self.store.verify(tx).await {
            Ok(()) => {}
            Err(error @ Error::Unavailable(_)) => return Err(error),
            Err(error) => {
                let text =
                    format!("an error of the database was swallowed; nothing can be committed: {error}");
                return Ok(Err(Failure::of_kind(Next::Retry, "TransactionBroken", text)));
            }
        }
        let counted = pieces.iter().filter(|piece| piece.is_counted);
        let counted: Vec<Arrival> = counted.map(|piece| arrival_of(piece.letter)).collect();
        if !counted.is_empty() {
            self.store.uncount_all(tx, &self.name, &counted).await?;
        }
        Ok(Ok(()))
    }

    pub(super) async fn handle(
        &self,
        tx: R::Tx,
        letter: &Letter,
        deliveries: Option<u32>,
    ) -> (Option<R::Tx>, Result<(), Failure>) {
        self.merge_clock(letter);
        let delivery =
            Delivery::new(claimed(letter, deliveries, &self.queue), Arc::clone(&self.subscription), 0);
        let delivery = Arc::new(delivery);
        let span = self.span_of(letter, deliveries);
        let context = |deadline| Context::new(delivery, Arc::clone(&self.shared), Some(deadline));
        let running = self.handlers.run(tx, context);
        #[cfg(feature = "opentelemetry")]
        let running = crate::link::linked(running, &span, letter.message.trail());
        running.instrument(span).await
    }

    fn span_of(&self, letter: &Letter, deliveries: Option<u32>) -> tracing::Span {
        let message = &letter.message;
        tracing::info_span!(
            "postrider.receive",
            consumer = %self.name,
            message = %letter.id,
            r#type = message.event_type().map(EventType::as_str),
            deliveries,
            correlation = message.trail().correlation_id.as_deref(),
            traceparent = message.trail().traceparent.as_deref(),
        )
    }

    /// What this process stages from now on comes after what it has received.
    fn merge_clock(&self, letter: &Letter) {
        let (Some(clock), Some(hlc)) = (&self.clock, letter.message.trail().hlc) else { return };
        if let Err(error) = clock.merge(hlc, SystemTime::now()) {
            tracing::warn!(name: "postrider.clock_drift", message = %letter.id, %error, "the sender's clock is not followed");
        }
    }
}
