//! The reply inbox of a publish call.
//!
//! The client's own publish spends a channel, a timer and a permit on each acknowledgement, and a lookup in a table. A call waits for
//! all of its messages anyway: it has one inbox to itself, in which replies are numbered.

use super::error::PublishResult;
use async_nats::{Client, Message, Subject, Subscriber, client::SubscribeError};
use futures_util::StreamExt;

/// A subscription that one call at a time reads.
pub(super) struct ReplyInbox {
    subscriber: Subscriber,
    /// The subject without the number.
    prefix: String,
    /// The number of the next message. No number is used twice, so a late reply is never taken for that to another message.
    next: u64,
}

impl ReplyInbox {
    pub(super) async fn open(client: &Client) -> Result<Self, SubscribeError> {
        let prefix = format!("{}.", client.new_inbox());
        let subscriber = client.subscribe(format!("{prefix}*")).await?;
        Ok(Self { subscriber, prefix, next: 0 })
    }

    /// The number of the next message.
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    /// The reply subject of the next message.
    pub(super) fn next_subject(&mut self) -> Subject {
        let subject = format!("{}{}", self.prefix, self.next);
        self.next += 1;
        subject.into()
    }

    /// Fills `results` from the replies until none is missing. The first result belongs to the message with the number `first`.
    ///
    /// Returns with results missing when the subscription ends.
    pub(super) async fn fill(
        &mut self,
        first: u64,
        results: &mut [Option<PublishResult>],
        read: impl Fn(usize, &Message) -> PublishResult,
    ) {
        let mut missing = results.iter().filter(|result| result.is_none()).count();
        while missing > 0
            && let Some(message) = self.subscriber.next().await
        {
            let number =
                message.subject.strip_prefix(&self.prefix).and_then(|number| number.parse::<u64>().ok());
            let index = number.and_then(|number| usize::try_from(number.checked_sub(first)?).ok());
            if let Some(index) = index
                && let Some(result @ None) = results.get_mut(index)
            {
                *result = Some(read(index, &message));
                missing -= 1;
            }
        }
    }
}
