//! Staging follow-ups in the caller's transaction.

use super::FollowUp;
use crate::{Error, IntoMessage, Message, Outbox, StageReport};
use std::future::Future;

/// Staging of follow-ups with every [`Outbox`].
pub trait FollowUpExt<Tx: Send>: Outbox<Tx> + Sync {
    /// Stages follow-ups in the caller's transaction, together with the local change. An empty list does nothing.
    fn follow_up(
        &self,
        tx: &mut Tx,
        follow_ups: impl IntoIterator<Item = FollowUp>,
    ) -> impl Future<Output = Result<StageReport, Error>> + Send {
        let messages: Result<Vec<Message>, _> =
            follow_ups.into_iter().map(IntoMessage::into_message).collect();
        async move { self.stage_all(tx, &messages?).await }
    }
}

impl<Tx: Send, O: Outbox<Tx> + Sync> FollowUpExt<Tx> for O {}
