//! Dead-lettering: messages that would fail again are stored as dead letters.

use super::{
    in_flight::arrival_of,
    processor::{MessageOutcome, Processor},
    transaction::PendingMessage,
};
use crate::failure::{Failure, Next};
use postrider_core::{Admission, DeadLetter, DecodedMessage, Error, Incoming, Invalid, Reason, TxBackend};

impl<R: TxBackend> Processor<R> {
    /// Dead-letters a message whose handler failed permanently.
    pub(super) async fn dead_letter(
        &self,
        pending: PendingMessage<'_>,
        reason: Reason,
        failure: &Failure,
    ) -> Result<MessageOutcome, Error> {
        let PendingMessage { decoded, deliveries, is_counted } = pending;
        let dead_letter = DeadLetter {
            message: decoded.keep(&self.origin),
            reason,
            error: Some(self.error_text.of(failure)),
            deliveries: deliveries.unwrap_or(1),
        };
        self.write_dead_letter(dead_letter, is_counted.then_some(decoded)).await?;
        tracing::warn!(
            name: "postrider.dead_lettered",
            consumer = %self.name, message_id = %decoded.id, queue = %self.queue, error = failure.kind(), %reason,
            "message of consumer {} dead-lettered in queue {} ({reason}): requeue it to retry", self.name, self.queue
        );
        Ok(MessageOutcome::DeadLettered)
    }

    /// Dead-letters a message that was delivered too often. One that took effect before is a duplicate all the same.
    pub(super) async fn dead_letter_unstarted(
        &self,
        pending: PendingMessage<'_>,
    ) -> Result<MessageOutcome, Error> {
        let decoded = pending.decoded;
        let mut tx = self.store.begin().await?;
        let admitted = self.store.admit_in(&mut tx, &self.name, &[arrival_of(decoded)]).await;
        // Only to see whether the record exists: a message that was not handled leaves none.
        self.store.rollback(tx).await.ok();
        if admitted?.first() == Some(&Admission::Duplicate) {
            return Ok(MessageOutcome::Duplicate);
        }
        let text = format!("the message was delivered {} times", pending.deliveries.unwrap_or_default());
        let failure = Failure::of_kind(Next::Reject, "MaxDeliveries", text);
        self.dead_letter(pending, Reason::MaxDeliveries, &failure).await
    }

    /// Dead-letters a message that cannot be decoded.
    pub(super) async fn dead_letter_undecodable(
        &self,
        incoming: &Incoming,
        invalid: &Invalid,
        deliveries: Option<u32>,
    ) -> Result<MessageOutcome, Error> {
        let message = incoming.keep(&self.queue);
        let id = message.id();
        let dead_letter = DeadLetter {
            message,
            reason: Reason::Undecodable,
            error: Some(invalid.to_string()),
            deliveries: deliveries.unwrap_or(1),
        };
        self.write_dead_letter(dead_letter, None).await?;
        tracing::warn!(
            name: "postrider.undecodable",
            consumer = %self.name, message_id = id.map(tracing::field::display), queue = %self.queue, %invalid,
            "undecodable message rejected by consumer {} and dead-lettered in queue {}: {invalid}", self.name, self.queue
        );
        Ok(MessageOutcome::Rejected)
    }

    async fn write_dead_letter(
        &self,
        dead_letter: DeadLetter,
        counted: Option<&DecodedMessage>,
    ) -> Result<(), Error> {
        let mut tx = self.store.begin().await?;
        let written = async {
            self.store.dead_letter_all(&mut tx, &[dead_letter]).await?;
            match counted {
                Some(decoded) => self.store.uncount_all(&mut tx, &self.name, &[arrival_of(decoded)]).await,
                None => Ok(()),
            }
        };
        if let Err(error) = written.await {
            self.store.rollback(tx).await.ok();
            return Err(error);
        }
        self.store.commit(tx).await
    }
}
