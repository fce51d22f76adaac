//! Where acknowledgements arrive.
//!
//! The client waits for each of them on a channel, a timer and a permit of its own, and finds the channel in a table. A call waits for all of
//! its messages anyway: it has an inbox to itself, in which they are numbered.

use super::answer::Answer;
use async_nats::{Client, Message, Subject, Subscriber, client::SubscribeError};
use futures_util::StreamExt;

/// A subscription that one call reads at a time.
pub(super) struct Inbox {
    subscriber: Subscriber,
    /// The subject up to the number.
    prefix: String,
    /// The number of the next message. None is used twice, so nobody takes an answer for that to another message.
    next: u64,
}

impl Inbox {
    pub(super) async fn open(client: &Client) -> Result<Self, SubscribeError> {
        let prefix = format!("{}.", client.new_inbox());
        let subscriber = client.subscribe(format!("{prefix}*")).await?;
        Ok(Self { subscriber, prefix, next: 0 })
    }

    /// The number of the next message.
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    /// Where the next message is to be answered.
    pub(super) fn subject(&mut self) -> Subject {
        let subject = format!("{}{}", self.prefix, self.next);
        self.next += 1;
        subject.into()
    }

    /// Puts what arrives into its place, until nothing is missing. The first place is that of the message with the number `first`.
    ///
    /// Ends with something missing when nothing will arrive any more.
    pub(super) async fn fill(
        &mut self,
        first: u64,
        places: &mut [Option<Answer>],
        read: impl Fn(usize, &Message) -> Answer,
    ) {
        let mut missing = places.iter().filter(|place| place.is_none()).count();
        while missing > 0
            && let Some(message) = self.subscriber.next().await
        {
            let number =
                message.subject.strip_prefix(&self.prefix).and_then(|number| number.parse::<u64>().ok());
            let place = number.and_then(|number| usize::try_from(number.checked_sub(first)?).ok());
            if let Some(place) = place
                && let Some(missed @ None) = places.get_mut(place)
            {
                *missed = Some(read(place, &message));
                missing -= 1;
            }
        }
    }
}
