//! Parking: what is of no use to try again is kept as a dead letter.

use super::{
    batch::Piece,
    mail::arrival_of,
    work::{End, Work},
};
use crate::failure::{Failure, Next};
use postrider_core::{Admission, Error, Incoming, Invalid, Letter, Parked, Reason, Receive};

impl<R: Receive> Work<R> {
    /// A handler will never succeed.
    pub(super) async fn park(
        &self,
        piece: Piece<'_>,
        reason: Reason,
        failure: &Failure,
    ) -> Result<End, Error> {
        let Piece { letter, deliveries, is_counted } = piece;
        let parked = Parked {
            message: letter.keep(&self.origin),
            reason,
            error: Some(self.error_text.of(failure)),
            deliveries: deliveries.unwrap_or(1),
        };
        self.commit_parked(parked, is_counted.then_some(letter)).await?;
        tracing::warn!(
            name: "postrider.parked",
            consumer = %self.name, message = %letter.id, queue = %self.queue, error = failure.kind(), %reason,
            "it is kept as a dead letter; requeue it to try again"
        );
        Ok(End::Parked)
    }

    /// It was delivered too often. One that had its effect long ago is a duplicate all the same.
    pub(super) async fn park_unrun(&self, piece: Piece<'_>) -> Result<End, Error> {
        let letter = piece.letter;
        let mut tx = self.store.begin().await?;
        let admitted = self.store.admit_all(&mut tx, &self.name, &[arrival_of(letter)]).await;
        // Only to see whether it is there: what was not run leaves no mark.
        self.store.rollback(tx).await.ok();
        if admitted?.first() == Some(&Admission::Duplicate) {
            return Ok(End::Duplicate);
        }
        let text = format!("it was delivered {} times", piece.deliveries.unwrap_or_default());
        let failure = Failure::of_kind(Next::Reject, "MaxDeliveries", text);
        self.park(piece, Reason::MaxDeliveries, &failure).await
    }

    /// It is no message that we understand.
    pub(super) async fn park_unreadable(
        &self,
        incoming: &Incoming,
        invalid: &Invalid,
        deliveries: Option<u32>,
    ) -> Result<End, Error> {
        let message = incoming.keep(&self.queue);
        let id = message.id();
        let parked = Parked {
            message,
            reason: Reason::Undecodable,
            error: Some(invalid.to_string()),
            deliveries: deliveries.unwrap_or(1),
        };
        self.commit_parked(parked, None).await?;
        tracing::warn!(
            name: "postrider.unreadable",
            consumer = %self.name, kept_as = ?id, queue = %self.queue, %invalid,
            "it is refused, and kept as a dead letter"
        );
        Ok(End::Refused)
    }

    async fn commit_parked(&self, parked: Parked, counted: Option<&Letter>) -> Result<(), Error> {
        let mut tx = self.store.begin().await?;
        let kept = async {
            self.store.park_all(&mut tx, &[parked]).await?;
            match counted {
                Some(letter) => self.store.uncount_all(&mut tx, &self.name, &[arrival_of(letter)]).await,
                None => Ok(()),
            }
        };
        if let Err(error) = kept.await {
            self.store.rollback(tx).await.ok();
            return Err(error);
        }
        self.store.commit(tx).await
    }
}
