//! Staging follow-ups in the caller's transaction.

use super::FollowUp;
use crate::{Error, IntoMessage, Message, Outbox, Staged};
use std::future::Future;

/// What every [`Outbox`] can do for follow-ups.
pub trait FollowUpExt<Tx: Send>: Outbox<Tx> + Sync {
    /// Records calls in the caller's transaction, beside the change that they follow. No calls: nothing happens.
    fn follow_up(
        &self,
        tx: &mut Tx,
        follow_ups: impl IntoIterator<Item = FollowUp>,
    ) -> impl Future<Output = Result<Staged, Error>> + Send {
        let messages: Result<Vec<Message>, _> =
            follow_ups.into_iter().map(IntoMessage::into_message).collect();
        async move { self.stage_all(tx, &messages?).await }
    }
}

impl<Tx: Send, O: Outbox<Tx> + Sync> FollowUpExt<Tx> for O {}
