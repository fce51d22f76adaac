//! A subscription: a connection that pulls from a consumer.

use super::{NatsSource, Request, builder::ConsumerSpec};
use crate::{byte_budget::ByteBudget, nats::connection::NatsConnection, session::ReusableConnection};
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

/// Expiry of a pull request at the server. Then a new one is sent, which shows that both sides are alive.
const PULL_EXPIRY: Duration = Duration::from_secs(5);

/// The server reports the expiry of a request at most this much later. Servers such as 2.9.10 drop some requests without a reply: those
/// that expire just when a new message arrives.
const PULL_GRACE: Duration = Duration::from_secs(1);

pub(super) struct Subscription {
    pub(super) connection: NatsConnection,
    consumer: PullConsumer,
    pull: Mutex<PullRequests>,
}

/// The subscriber that receives messages, and the state of the current pull request.
struct PullRequests {
    subscriber: Subscriber,
    /// The subject of the subscriber, without the number of the request.
    inbox: String,
    /// The number of the last request.
    request: u64,
    /// Messages of the request that are still to come.
    pending: usize,
    requested_at: Instant,
    /// The request is over by then, even without a reply.
    request_deadline: Instant,
    /// Whether the server has replied since the request.
    has_replied: bool,
    /// The server must have replied by then.
    reply_deadline: Instant,
    /// The next message did not fit into the bytes of the last request.
    is_too_large: bool,
}

/// A message with its ack subject.
pub(super) struct Delivery {
    pub(super) message: Message,
    pub(super) reply: Subject,
    pub(super) sequence: u64,
    pub(super) deliveries: u32,
}

impl Subscription {
    pub(super) async fn open(connection: NatsConnection, source: &NatsSource) -> Result<Self, SourceError> {
        let consumer = consumer(&connection, source).await?;
        let inbox = connection.client.new_inbox();
        let subscriber =
            connection.client.subscribe(format!("{inbox}.*")).await.map_err(SourceError::unavailable)?;
        let now = Instant::now();
        let pull = PullRequests {
            subscriber,
            inbox,
            request: 0,
            pending: 0,
            requested_at: now,
            request_deadline: now,
            has_replied: true,
            reply_deadline: now,
            is_too_large: false,
        };
        Ok(Self { connection, consumer, pull: Mutex::new(pull) })
    }

    /// Ack deadline: an unacked message is redelivered after this.
    pub(super) fn ack_deadline(&self) -> Duration {
        let config = &self.consumer.cached_info().config;
        config.backoff.iter().copied().chain([config.ack_wait]).min().unwrap_or(config.ack_wait)
    }

    /// Waits for the first message and returns up to `most` that are available. Safe to drop: messages wait in the subscription.
    pub(super) async fn receive(
        &self,
        most: usize,
        budget: &ByteBudget,
        ack_timeout: Duration,
    ) -> Result<Vec<Delivery>, SourceError> {
        let mut pull = self.pull.lock().await;
        // The last call was so long ago that the buffered messages have been redelivered to other consumers.
        if pull.requested_at.elapsed() >= self.ack_deadline() {
            pull.discard_buffered();
        }
        let mut received = Vec::new();
        loop {
            while received.len() < most
                && let Some(next) = pull.subscriber.next().now_or_never()
            {
                match pull.handle(next) {
                    Ok(delivery) => received.extend(delivery),
                    Err(error) if received.is_empty() => return Err(error),
                    // The next call gets the error again.
                    Err(_) => pull.pending = 0,
                }
            }
            if !received.is_empty() {
                return Ok(received);
            }
            if pull.pending == 0 {
                if budget.messages(most) == 0 || pull.is_too_large && !budget.is_idle() {
                    tokio::select! {
                        () = budget.freed() => pull.is_too_large = false,
                        () = self.connection.lost() => return Err(SourceError::unavailable("the connection was lost")),
                    }
                    continue;
                }
                self.send_request(&mut pull, most, budget, ack_timeout).await?;
            }
            let (request_deadline, reply_deadline) = (pull.request_deadline, pull.reply_deadline);
            let next = tokio::select! {
                biased;
                next = pull.subscriber.next() => next,
                () = self.connection.lost() => return Err(SourceError::unavailable("the connection was lost")),
                () = sleep_until(reply_deadline) => return Err(SourceError::unavailable("no reply from the server within the timeout")),
                () = sleep_until(request_deadline) => {
                    pull.pending = 0;
                    continue;
                }
            };
            received.extend(pull.handle(next)?);
        }
    }

    async fn send_request(
        &self,
        pull: &mut PullRequests,
        most: usize,
        budget: &ByteBudget,
        ack_timeout: Duration,
    ) -> Result<(), SourceError> {
        let config = &self.consumer.cached_info().config;
        let batch =
            usize::try_from(config.max_batch).ok().filter(|limit| *limit > 0).unwrap_or(most).min(most);
        let longest = if config.max_expires.is_zero() { PULL_EXPIRY } else { config.max_expires };
        // Chosen so that no multiple of it equals the ack deadline.
        let expires = PULL_EXPIRY.min(longest).min(self.ack_deadline() * 2 / 5);
        // A message that is larger than the whole budget is received alone. A consumer's own limit comes first.
        let is_too_large = mem::take(&mut pull.is_too_large);
        let batch = if is_too_large { 1 } else { batch };
        let max_bytes = if is_too_large { 0 } else { budget.free() };
        let max_bytes = match usize::try_from(config.max_bytes).ok().filter(|limit| *limit > 0) {
            Some(limit) if max_bytes == 0 => limit,
            Some(limit) => limit.min(max_bytes),
            None => max_bytes,
        };
        let request =
            pull::BatchConfig { batch, expires: Some(expires), max_bytes, ..pull::BatchConfig::default() };
        pull.request += 1;
        let sent = self.consumer.request_batch(request, Subject::from(pull.reply_subject())).await;
        sent.map_err(SourceError::unavailable)?;
        pull.pending = batch;
        pull.requested_at = Instant::now();
        pull.request_deadline = pull.requested_at + expires + PULL_GRACE;
        if mem::take(&mut pull.has_replied) {
            pull.reply_deadline = pull.requested_at + expires + ack_timeout;
        }
        Ok(())
    }

    /// Sends an ack and waits for the server to confirm it.
    pub(super) async fn send_ack(&self, reply: Subject, ack: Bytes) -> Result<(), SourceError> {
        // The client would keep the ack for a connection that it opens by itself, after the caller has seen that the connection is lost.
        if !self.connection.is_usable() {
            return Err(SourceError::unavailable("the connection was lost"));
        }
        let request = Request::new().payload(ack).timeout(None);
        tokio::select! {
            biased;
            confirmed = self.connection.client.send_request(reply, request) => match confirmed {
                Ok(_) => Ok(()),
                Err(error) if error.kind() == RequestErrorKind::NoResponders => {
                    Err(SourceError::stale("the consumer does not exist any more, or JetStream is disabled"))
                }
                Err(error) => Err(SourceError::unavailable(error)),
            },
            () = self.connection.lost() => Err(SourceError::unavailable("the connection was lost before the ack was confirmed")),
        }
    }

    /// Ends the subscription. Returns the ack subjects of buffered messages, to be nacked.
    pub(super) async fn unsubscribe(&self) -> Vec<Subject> {
        let mut pull = self.pull.lock().await;
        pull.subscriber.unsubscribe().await.ok();
        let mut buffered = Vec::new();
        while let Some(Some(message)) = pull.subscriber.next().now_or_never() {
            buffered.extend(message.reply.filter(|_| message.status.is_none()));
        }
        buffered
    }
}

impl ReusableConnection for Subscription {
    fn is_usable(&self) -> bool {
        self.connection.is_usable()
    }
}

impl PullRequests {
    /// The reply subject of the last request.
    fn reply_subject(&self) -> String {
        format!("{}.{}", self.inbox, self.request)
    }

    /// Discards buffered messages; the server redelivers them.
    fn discard_buffered(&mut self) {
        self.pending = 0;
        while let Some(Some(_)) = self.subscriber.next().now_or_never() {}
    }

    /// Handles a message, or a status of the server about the request.
    fn handle(&mut self, next: Option<Message>) -> Result<Option<Delivery>, SourceError> {
        let Some(message) = next else { return Err(SourceError::unavailable("the connection was closed")) };
        self.has_replied = true;
        let ended = |why: &str| {
            let description = message.description.as_deref().unwrap_or_default();
            Err(SourceError::unavailable(format!("{why} ({description})")))
        };
        match message.status {
            None | Some(StatusCode::OK) => {
                self.pending = self.pending.saturating_sub(1);
                Ok(Delivery::new(message))
            }
            // The request is over; a new one follows, unless it was sent already.
            Some(StatusCode::TIMEOUT | StatusCode::NOT_FOUND) => {
                if message.subject.as_str() == self.reply_subject() {
                    self.pending = 0;
                }
                Ok(None)
            }
            Some(StatusCode::IDLE_HEARTBEAT) => Ok(None),
            Some(StatusCode::REQUEST_TERMINATED)
                if message.description.as_deref() == Some("Message Size Exceeds MaxBytes") =>
            {
                if message.subject.as_str() == self.reply_subject() {
                    self.pending = 0;
                    self.is_too_large = true;
                }
                Ok(None)
            }
            Some(StatusCode::NO_RESPONDERS) => {
                ended("no responders: the consumer does not exist, or JetStream is disabled")
            }
            Some(_) => ended("the server ended the pull request"),
        }
    }
}

impl Delivery {
    /// `None` if the message is not from JetStream, because it could not be acked.
    fn new(message: Message) -> Option<Self> {
        let reply = message.reply.clone()?;
        let (sequence, deliveries) = parse_ack_subject(&reply)?;
        Some(Self { message, reply, sequence, deliveries })
    }
}

/// The stream sequence and the number of deliveries: `$JS.ACK.<stream>.<consumer>.<deliveries>.<sequence>.…`; later servers put the domain
/// and the account in front of the stream.
fn parse_ack_subject(reply: &str) -> Option<(u64, u32)> {
    let tokens: Vec<_> = reply.strip_prefix("$JS.ACK.")?.split('.').collect();
    let first = if tokens.len() >= 9 { 4 } else { 2 };
    Some((tokens.get(first + 1)?.parse().ok()?, tokens.get(first)?.parse().ok()?))
}

/// The configured consumer, created if that is configured.
async fn consumer(connection: &NatsConnection, source: &NatsSource) -> Result<PullConsumer, SourceError> {
    let NatsSource { stream, durable, consumer_spec, .. } = source;
    let named = connection.context.get_stream_no_info(stream).await.map_err(SourceError::unavailable)?;
    let consumer = match (named.consumer_info(durable).await, consumer_spec) {
        (Ok(info), _) if info.config.deliver_subject.is_some() => {
            return Err(SourceError::unavailable(format!(
                "consumer {durable} of stream {stream} is a push consumer; create a pull consumer"
            )));
        }
        (Ok(_), _) => {
            named.get_consumer(durable).await.map_err(|error| SourceError::unavailable(error.to_string()))?
        }
        (Err(error), Some(consumer_spec)) if error.kind() == ConsumerInfoErrorKind::NotFound => {
            let result = named.create_consumer(config(durable, consumer_spec)).await;
            result.map_err(|error| {
                SourceError::unavailable(format!(
                    "consumer {durable} of stream {stream} cannot be created: {error}"
                ))
            })?
        }
        (Err(error), _) => {
            return Err(SourceError::unavailable(format!(
                "consumer {durable} of stream {stream} does not exist: {} ({error})",
                super::check::create_consumer_command(stream, durable)
            )));
        }
    };
    Ok(consumer)
}

fn config(durable: &str, consumer_spec: &ConsumerSpec) -> pull::Config {
    pull::Config {
        durable_name: Some(durable.to_owned()),
        filter_subject: consumer_spec.subject.clone(),
        ack_policy: AckPolicy::Explicit,
        ack_wait: consumer_spec.ack_wait,
        max_deliver: -1,
        ..pull::Config::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ack_subject_parses_with_and_without_domain() {
        assert_eq!(parse_ack_subject("$JS.ACK.ORDERS.billing.3.17.20.1700000000000000000.5"), Some((17, 3)));
        assert_eq!(
            parse_ack_subject("$JS.ACK._.hash.ORDERS.billing.3.17.20.1700000000000000000.5.x"),
            Some((17, 3))
        );
        assert_eq!(parse_ack_subject("_INBOX.a.b.c.d.e.f.g.h"), None);
        assert_eq!(parse_ack_subject("$JS.ACK.ORDERS"), None);
    }
}
