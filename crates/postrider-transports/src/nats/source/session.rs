//! A connection on which messages are asked for.

use super::{NatsSource, Request, builder::Created};
use crate::{line::Link, nats::link::NatsLink};
use async_nats::{
    Message, StatusCode, Subject, Subscriber,
    client::RequestErrorKind,
    jetstream::{
        consumer::{AckPolicy, PullConsumer, pull},
        context::ConsumerInfoErrorKind,
    },
};
use bytes::Bytes;
use futures_util::{FutureExt, StreamExt};
use postrider_core::SourceError;
use std::{mem, time::Duration};
use tokio::{
    sync::Mutex,
    time::{Instant, sleep_until},
};

/// A request stays with the server for so long. Then it is asked again, which shows that both are still there.
const ASKS_FOR: Duration = Duration::from_secs(5);

/// The server's word that a request is over comes within so much longer. Servers such as 2.9.10 forget some of them without a word: those
/// whose time is over just when there is a message again.
const IS_LATE: Duration = Duration::from_secs(1);

pub(super) struct Session {
    pub(super) link: NatsLink,
    consumer: PullConsumer,
    pull: Mutex<Pull>,
}

/// What was asked for, and what comes.
struct Pull {
    subscriber: Subscriber,
    /// Where the subscriber hears, without the number of the request.
    inbox: String,
    /// The last request.
    request: u64,
    /// So many of what was asked for are still to come.
    pending: usize,
    asked_at: Instant,
    /// By then the request is over, whatever the server says.
    over_by: Instant,
    /// Whether the server has said something since it was asked.
    is_heard: bool,
    /// By then the server has said something.
    speaks_by: Instant,
}

/// A message, and how it is answered.
pub(super) struct Delivery {
    pub(super) message: Message,
    pub(super) reply: Subject,
    pub(super) sequence: u64,
    pub(super) times: u32,
}

impl Session {
    pub(super) async fn open(link: NatsLink, source: &NatsSource) -> Result<Self, SourceError> {
        let consumer = consumer(&link, source).await?;
        let inbox = link.client.new_inbox();
        let subscriber = link.client.subscribe(format!("{inbox}.*")).await.map_err(SourceError::down)?;
        let now = Instant::now();
        let pull = Pull {
            subscriber,
            inbox,
            request: 0,
            pending: 0,
            asked_at: now,
            over_by: now,
            is_heard: true,
            speaks_by: now,
        };
        Ok(Self { link, consumer, pull: Mutex::new(pull) })
    }

    /// A message comes again when it was in hand for so long.
    pub(super) fn holds_for(&self) -> Duration {
        let config = &self.consumer.cached_info().config;
        config.backoff.iter().copied().chain([config.ack_wait]).min().unwrap_or(config.ack_wait)
    }

    /// What is there, up to `most`, once there is something. Nothing is lost when this is dropped: what has come waits in the
    /// subscription, and what was asked for comes there.
    pub(super) async fn take(&self, most: usize, patience: Duration) -> Result<Vec<Delivery>, SourceError> {
        let mut pull = self.pull.lock().await;
        // Nobody has called for so long that what has come since is somebody else's by now.
        if pull.asked_at.elapsed() >= self.holds_for() {
            pull.forget();
        }
        let mut taken = Vec::new();
        loop {
            while taken.len() < most
                && let Some(next) = pull.subscriber.next().now_or_never()
            {
                match pull.open(next) {
                    Ok(delivery) => taken.extend(delivery),
                    Err(error) if taken.is_empty() => return Err(error),
                    // Whoever asks next is told again.
                    Err(_) => pull.pending = 0,
                }
            }
            if !taken.is_empty() {
                return Ok(taken);
            }
            if pull.pending == 0 {
                self.ask(&mut pull, most, patience).await?;
            }
            let (over_by, speaks_by) = (pull.over_by, pull.speaks_by);
            let next = tokio::select! {
                biased;
                next = pull.subscriber.next() => next,
                () = self.link.lost() => return Err(SourceError::down("the connection was lost")),
                () = sleep_until(speaks_by) => return Err(SourceError::down("the server says nothing any more")),
                () = sleep_until(over_by) => {
                    pull.pending = 0;
                    continue;
                }
            };
            taken.extend(pull.open(next)?);
        }
    }

    async fn ask(&self, pull: &mut Pull, most: usize, patience: Duration) -> Result<(), SourceError> {
        let config = &self.consumer.cached_info().config;
        let batch =
            usize::try_from(config.max_batch).ok().filter(|limit| *limit > 0).unwrap_or(most).min(most);
        let longest = if config.max_expires.is_zero() { ASKS_FOR } else { config.max_expires };
        // No multiple of it is the time after which a message comes again.
        let expires = ASKS_FOR.min(longest).min(self.holds_for() * 2 / 5);
        let request = pull::BatchConfig { batch, expires: Some(expires), ..pull::BatchConfig::default() };
        pull.request += 1;
        let asked = self.consumer.request_batch(request, Subject::from(pull.place())).await;
        asked.map_err(SourceError::down)?;
        pull.pending = batch;
        pull.asked_at = Instant::now();
        pull.over_by = pull.asked_at + expires + IS_LATE;
        if mem::take(&mut pull.is_heard) {
            pull.speaks_by = pull.asked_at + expires + patience;
        }
        Ok(())
    }

    /// Says a word about a message, and waits for the server to confirm it.
    pub(super) async fn confirm(&self, reply: Subject, word: Bytes) -> Result<(), SourceError> {
        // The client would keep it for a connection that it makes by itself, after everybody has been told that it is lost.
        if !self.link.is_good() {
            return Err(SourceError::down("the connection was lost"));
        }
        let request = Request::new().payload(word).timeout(None);
        tokio::select! {
            biased;
            confirmed = self.link.client.send_request(reply, request) => match confirmed {
                Ok(_) => Ok(()),
                Err(error) if error.kind() == RequestErrorKind::NoResponders => {
                    Err(SourceError::stale("there is no such consumer any more, or JetStream is off"))
                }
                Err(error) => Err(SourceError::down(error)),
            },
            () = self.link.lost() => Err(SourceError::down("the connection was lost before the answer was confirmed")),
        }
    }

    /// Asks for nothing more. What has come and was not taken is to be given back.
    pub(super) async fn leave(&self) -> Vec<Subject> {
        let mut pull = self.pull.lock().await;
        pull.subscriber.unsubscribe().await.ok();
        let mut back = Vec::new();
        while let Some(Some(message)) = pull.subscriber.next().now_or_never() {
            back.extend(message.reply.filter(|_| message.status.is_none()));
        }
        back
    }
}

impl Pull {
    /// Where the server answers the last request.
    fn place(&self) -> String {
        format!("{}.{}", self.inbox, self.request)
    }

    /// What has come comes again by itself.
    fn forget(&mut self) {
        self.pending = 0;
        while let Some(Some(_)) = self.subscriber.next().now_or_never() {}
    }

    /// A message, or a word of the server about the request.
    fn open(&mut self, next: Option<Message>) -> Result<Option<Delivery>, SourceError> {
        let Some(message) = next else { return Err(SourceError::down("the connection was closed")) };
        self.is_heard = true;
        let said = |what: &str| {
            let description = message.description.as_deref().unwrap_or_default();
            Err(SourceError::down(format!("{what} ({description})")))
        };
        match message.status {
            None | Some(StatusCode::OK) => {
                self.pending = self.pending.saturating_sub(1);
                Ok(Delivery::of(message))
            }
            // It is over, and the next one is sent, unless it was already.
            Some(StatusCode::TIMEOUT | StatusCode::NOT_FOUND) => {
                if message.subject.as_str() == self.place() {
                    self.pending = 0;
                }
                Ok(None)
            }
            Some(StatusCode::IDLE_HEARTBEAT) => Ok(None),
            Some(StatusCode::NO_RESPONDERS) => {
                said("nobody answers: there is no such consumer, or JetStream is off")
            }
            Some(_) => said("the server has ended the request"),
        }
    }
}

impl Delivery {
    /// Nothing if it is none of JetStream: nobody could answer it.
    fn of(message: Message) -> Option<Self> {
        let reply = message.reply.clone()?;
        let (sequence, times) = place(&reply)?;
        Some(Self { message, reply, sequence, times })
    }
}

/// The place in the stream, and the number of deliveries: `$JS.ACK.<stream>.<consumer>.<deliveries>.<place>.…`, from later servers with
/// the domain and the account in front of the stream.
fn place(reply: &str) -> Option<(u64, u32)> {
    let tokens: Vec<_> = reply.strip_prefix("$JS.ACK.")?.split('.').collect();
    let first = if tokens.len() >= 9 { 4 } else { 2 };
    Some((tokens.get(first + 1)?.parse().ok()?, tokens.get(first)?.parse().ok()?))
}

/// The consumer that was named, made where that was asked for.
async fn consumer(link: &NatsLink, source: &NatsSource) -> Result<PullConsumer, SourceError> {
    let NatsSource { stream, durable, created, .. } = source;
    let named = link.context.get_stream_no_info(stream).await.map_err(SourceError::down)?;
    let consumer = match (named.consumer_info(durable).await, created) {
        (Ok(info), _) if info.config.deliver_subject.is_some() => {
            return Err(SourceError::down(format!(
                "consumer {durable} of stream {stream} is pushed to; make a pull consumer"
            )));
        }
        (Ok(_), _) => {
            named.get_consumer(durable).await.map_err(|error| SourceError::down(error.to_string()))?
        }
        (Err(error), Some(created)) if error.kind() == ConsumerInfoErrorKind::NotFound => {
            let made = named.create_consumer(config(durable, created)).await;
            made.map_err(|error| {
                SourceError::down(format!("consumer {durable} of stream {stream} cannot be made: {error}"))
            })?
        }
        (Err(error), _) => {
            return Err(SourceError::down(format!(
                "there is no consumer {durable} of stream {stream}: {} ({error})",
                super::check::create(stream, durable)
            )));
        }
    };
    Ok(consumer)
}

fn config(durable: &str, created: &Created) -> pull::Config {
    pull::Config {
        durable_name: Some(durable.to_owned()),
        filter_subject: created.subject.clone(),
        ack_policy: AckPolicy::Explicit,
        ack_wait: created.ack_wait,
        max_deliver: -1,
        ..pull::Config::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_of_reply_are_read() {
        assert_eq!(place("$JS.ACK.ORDERS.billing.3.17.20.1700000000000000000.5"), Some((17, 3)));
        assert_eq!(place("$JS.ACK._.hash.ORDERS.billing.3.17.20.1700000000000000000.5.x"), Some((17, 3)));
        assert_eq!(place("_INBOX.a.b.c.d.e.f.g.h"), None);
        assert_eq!(place("$JS.ACK.ORDERS"), None);
    }
}
