//! Sending parcels on one channel, and what the broker says to each.
//!
//! A confirm says that the broker has dealt with a message, and not that it has put it anywhere: one that no queue wants is
//! *returned* first, and confirmed then. The client hands a return to whichever confirm it resolves next, which is often that of
//! another message. So all confirms of a batch are awaited, what came with any of them is collected, and a message is accepted
//! when it was confirmed and nobody returned one of its id, exchange and routing key.

use super::{address::Address, wire::Parcel};
use lapin::{
    Channel, Confirmation, Error, ErrorKind, PublisherConfirm,
    message::BasicReturnMessage,
    options::BasicPublishOptions,
    protocol::{AMQPErrorKind, AMQPSoftError},
};
use postrider_core::{PublishError, Receipt};
use std::{
    future::{Future, poll_fn},
    pin::{Pin, pin},
    task::Poll,
};

pub(super) type Answer = Result<Receipt, PublishError>;

/// What became of a batch on a channel.
pub(super) struct Sent {
    /// One for each parcel, in their order.
    pub(super) answers: Vec<Answer>,
    /// The broker closed the channel for a reason that may concern one of them only, and does not say which.
    pub(super) is_spoilt: bool,
}

/// What was said to one message.
enum Said {
    Ack,
    Nack,
    Nothing,
    Failed(Error),
}

/// Sends them in their order, and reads every answer.
pub(super) async fn send(channel: &Channel, parcels: &[Parcel<'_>]) -> Sent {
    let mut said = Vec::with_capacity(parcels.len());
    let mut returned = Vec::new();
    for confirm in confirms(channel, parcels).await {
        let confirmation = match confirm {
            Ok(confirm) => confirm.await,
            Err(error) => Err(error),
        };
        said.push(match confirmation {
            Ok(Confirmation::Ack(message)) => {
                returned.extend(message);
                Said::Ack
            }
            Ok(Confirmation::Nack(message)) => {
                returned.extend(message);
                Said::Nack
            }
            Ok(Confirmation::NotRequested) => Said::Nothing,
            Err(error) => Said::Failed(error),
        });
    }
    judge(parcels, said, &returned)
}

/// Hands all of them over before it waits for the first: the client queues a message as soon as it is asked to.
async fn confirms(channel: &Channel, parcels: &[Parcel<'_>]) -> Vec<lapin::Result<PublisherConfirm>> {
    let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
    let mut sending: Vec<Pin<Box<dyn Future<Output = lapin::Result<PublisherConfirm>> + Send + '_>>> =
        Vec::new();
    let mut begun = Vec::with_capacity(parcels.len());
    for parcel in parcels {
        let Address { exchange, key } = parcel.address.clone();
        let body = &parcel.outgoing.body;
        let mut one =
            Box::pin(channel.basic_publish(exchange, key, options, body, parcel.properties.clone()));
        let first = poll_fn(|context| Poll::Ready(one.as_mut().poll(context))).await;
        begun.push(match first {
            Poll::Ready(result) => Some(result),
            Poll::Pending => None,
        });
        sending.push(one);
    }
    let mut confirms = Vec::with_capacity(parcels.len());
    for (first, one) in begun.into_iter().zip(sending) {
        confirms.push(match first {
            Some(result) => result,
            None => pin!(one).await,
        });
    }
    confirms
}

fn judge(parcels: &[Parcel<'_>], said: Vec<Said>, returned: &[BasicReturnMessage]) -> Sent {
    let is_of = |message: &BasicReturnMessage, parcel: &Parcel<'_>| {
        let delivery = &message.delivery;
        delivery.properties.message_id().as_ref() == Some(&parcel.id)
            && delivery.exchange == parcel.address.exchange
            && delivery.routing_key == parcel.address.key
    };
    // Nobody else publishes on this channel. If there is a return that nobody knows, no confirm can be trusted.
    let is_strange = |message: &BasicReturnMessage| !parcels.iter().any(|parcel| is_of(message, parcel));
    let strange = returned.iter().any(is_strange);
    let mut is_spoilt = false;
    let answers = parcels.iter().zip(said).map(|(parcel, said)| {
        if let Some(message) = returned.iter().find(|message| is_of(message, parcel)) {
            return Err(unroutable(&parcel.address, message));
        }
        match said {
            Said::Ack if strange => {
                Err(PublishError::unknown("the broker returned a message that was not sent"))
            }
            Said::Ack => Ok(Receipt::new()),
            Said::Nack => Err(PublishError::retry(format!(
                "the broker could not keep it (nack) at {}: a queue is full and rejects, or failed",
                parcel.address
            ))
            .named("Nacked")),
            Said::Nothing => Err(PublishError::unknown("the channel does not confirm")),
            Said::Failed(error) => Err(closed(parcel, error, parcels.len() == 1, &mut is_spoilt)),
        }
    });
    Sent { answers: answers.collect(), is_spoilt }
}

fn unroutable(address: &Address, message: &BasicReturnMessage) -> PublishError {
    PublishError::retry(format!(
        "unroutable: {address} leads to no queue ({} {}): bind one to it",
        message.reply_code, message.reply_text
    ))
    .named("Unroutable")
}

/// The channel or the connection ended before there was an answer.
fn closed(parcel: &Parcel<'_>, error: Error, is_alone: bool, is_spoilt: &mut bool) -> PublishError {
    let Some(reason) = refusal(&error) else { return PublishError::unknown(error) };
    match reason {
        // This concerns all of them: they have the exchange in common.
        AMQPSoftError::NOTFOUND => PublishError::retry(format!(
            "there is no exchange {:?}: declare it before messages are sent to it ({error})",
            parcel.address.exchange.as_str()
        ))
        .named("NoExchange"),
        AMQPSoftError::PRECONDITIONFAILED | AMQPSoftError::CONTENTTOOLARGE if is_alone => {
            PublishError::reject(error).named("TooLarge")
        }
        AMQPSoftError::ACCESSREFUSED if is_alone => PublishError::retry(error).named("AccessRefused"),
        _ if is_alone => PublishError::retry(error),
        _ => {
            *is_spoilt = true;
            PublishError::unknown(error)
        }
    }
}

/// Why the broker closed the channel, if that is what happened.
pub(super) fn refusal(error: &Error) -> Option<&AMQPSoftError> {
    match error.kind() {
        ErrorKind::ProtocolError(error) => match error.kind() {
            AMQPErrorKind::Soft(reason) => Some(reason),
            AMQPErrorKind::Hard(_) => None,
        },
        _ => None,
    }
}
