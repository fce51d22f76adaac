//! Publishes a batch on one channel and collects the publish result of each message.
//!
//! A publisher confirm says that the broker has processed a message, not that it has stored it: a message that no queue is bound for
//! is *returned* first and confirmed afterwards. The client attaches a return to whichever confirm it resolves next, which often
//! belongs to another message. So all confirms of a batch are awaited, the returns attached to any of them are collected, and a
//! message is accepted only if it was confirmed and no return has its id, exchange and routing key.

use super::{
    address::Address,
    error::{channel_closed, nacked, unroutable},
    wire::Publication,
};
use lapin::{
    Channel, Confirmation, Error, PublisherConfirm, message::BasicReturnMessage, options::BasicPublishOptions,
};
use postrider_core::{PublishError, Receipt};
use std::{
    future::{Future, poll_fn},
    pin::{Pin, pin},
    task::Poll,
};

pub(super) type PublishResult = Result<Receipt, PublishError>;

/// The result of a batch on a channel.
pub(super) struct BatchOutcome {
    /// One result per message, in the order of the batch.
    pub(super) results: Vec<PublishResult>,
    /// The broker closed the channel because of one message, and does not say which.
    pub(super) is_ambiguous: bool,
}

/// The broker's confirm of one message.
enum ConfirmOutcome {
    Ack,
    Nack,
    NotRequested,
    Failed(Error),
}

/// Publishes the batch in order and reads every confirm.
pub(super) async fn send(channel: &Channel, publications: &[Publication<'_>]) -> BatchOutcome {
    let mut outcomes = Vec::with_capacity(publications.len());
    let mut returned = Vec::new();
    for confirm in confirms(channel, publications).await {
        let confirmation = match confirm {
            Ok(confirm) => confirm.await,
            Err(error) => Err(error),
        };
        outcomes.push(match confirmation {
            Ok(Confirmation::Ack(message)) => {
                returned.extend(message);
                ConfirmOutcome::Ack
            }
            Ok(Confirmation::Nack(message)) => {
                returned.extend(message);
                ConfirmOutcome::Nack
            }
            Ok(Confirmation::NotRequested) => ConfirmOutcome::NotRequested,
            Err(error) => ConfirmOutcome::Failed(error),
        });
    }
    classify(publications, outcomes, &returned)
}

/// Hands all messages to the client before it awaits the first confirm: the client queues a message on the first poll.
async fn confirms(
    channel: &Channel,
    publications: &[Publication<'_>],
) -> Vec<lapin::Result<PublisherConfirm>> {
    let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
    let mut sending: Vec<Pin<Box<dyn Future<Output = lapin::Result<PublisherConfirm>> + Send + '_>>> =
        Vec::new();
    let mut first_polls = Vec::with_capacity(publications.len());
    for publication in publications {
        let Address { exchange, key } = publication.address.clone();
        let body = &publication.outgoing.body;
        let mut send =
            Box::pin(channel.basic_publish(exchange, key, options, body, publication.properties.clone()));
        let first = poll_fn(|context| Poll::Ready(send.as_mut().poll(context))).await;
        first_polls.push(match first {
            Poll::Ready(result) => Some(result),
            Poll::Pending => None,
        });
        sending.push(send);
    }
    let mut confirms = Vec::with_capacity(publications.len());
    for (first, send) in first_polls.into_iter().zip(sending) {
        confirms.push(match first {
            Some(result) => result,
            None => pin!(send).await,
        });
    }
    confirms
}

fn classify(
    publications: &[Publication<'_>],
    outcomes: Vec<ConfirmOutcome>,
    returned: &[BasicReturnMessage],
) -> BatchOutcome {
    let is_of = |message: &BasicReturnMessage, publication: &Publication<'_>| {
        let delivery = &message.delivery;
        delivery.properties.message_id().as_ref() == Some(&publication.id)
            && delivery.exchange == publication.address.exchange
            && delivery.routing_key == publication.address.key
    };
    // Nothing else publishes on this channel. A return that matches no message makes every confirm doubtful.
    let is_unmatched =
        |message: &BasicReturnMessage| !publications.iter().any(|publication| is_of(message, publication));
    let has_unmatched = returned.iter().any(is_unmatched);
    let mut is_ambiguous = false;
    let results = publications.iter().zip(outcomes).map(|(publication, outcome)| {
        if let Some(message) = returned.iter().find(|message| is_of(message, publication)) {
            return Err(unroutable(&publication.address, message));
        }
        match outcome {
            ConfirmOutcome::Ack if has_unmatched => {
                Err(PublishError::unknown("the broker returned a message that was not sent"))
            }
            ConfirmOutcome::Ack => Ok(Receipt::new()),
            ConfirmOutcome::Nack => Err(nacked(&publication.address)),
            ConfirmOutcome::NotRequested => Err(PublishError::unknown("the channel is not in confirm mode")),
            ConfirmOutcome::Failed(error) => {
                Err(channel_closed(publication, error, publications.len() == 1, &mut is_ambiguous))
            }
        }
    });
    BatchOutcome { results: results.collect(), is_ambiguous }
}
