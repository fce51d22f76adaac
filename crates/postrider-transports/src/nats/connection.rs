//! A connection to a NATS server.

use super::{
    builder::NatsBuilder,
    error::{self, PublishResult},
    reply_inbox::ReplyInbox,
    wire,
};
use crate::{session::ReusableConnection, tls::describe};
use async_nats::{
    Client, Event, Message, Subject,
    client::SubscribeError,
    connection::State,
    jetstream::{Context, context::ContextBuilder},
};
use postrider_core::{Outgoing, PublishError};
use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};

pub(super) struct NatsConnection {
    pub(super) context: Context,
    pub(super) client: Client,
    /// Inboxes that no call reads now.
    idle_inboxes: Mutex<Vec<ReplyInbox>>,
    is_lost: watch::Receiver<bool>,
    /// The server's last error. It does not say which message caused it.
    last_server_error: Arc<Mutex<Option<String>>>,
}

/// Why a call stops waiting for acknowledgements.
#[derive(Debug, Clone, Copy)]
enum WaitEnd {
    Lost,
    TimedOut,
}

impl NatsConnection {
    /// Connects, or returns why that failed.
    pub(super) async fn connect(options: &NatsBuilder) -> Result<Self, String> {
        let (set_lost, is_lost) = watch::channel(false);
        let last_server_error = Arc::new(Mutex::new(None));
        let reported = Arc::clone(&last_server_error);
        let on_event = move |event| {
            match event {
                Event::Disconnected | Event::Closed => {
                    set_lost.send_replace(true);
                }
                Event::ServerError(error) => {
                    *reported.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.to_string());
                }
                _ => {}
            }
            std::future::ready(())
        };
        let failed = |error: &(dyn std::error::Error + 'static)| {
            format!("no connection to NATS at {}: {}", options.addresses(), describe(error))
        };
        let client = options.connect_options().map_err(|error| failed(&error))?.event_callback(on_event);
        let client = client.connect(&options.servers[..]).await.map_err(|error| failed(&error))?;
        let context = ContextBuilder::new().timeout(options.request_timeout).build(client.clone());
        Ok(Self { context, client, idle_inboxes: Mutex::default(), is_lost, last_server_error })
    }

    fn is_lost(&self) -> bool {
        *self.is_lost.borrow() || self.client.connection_state() != State::Connected
    }

    /// Sends all messages, then waits for the acknowledgement of each.
    pub(super) async fn publish(
        &self,
        part: &[Outgoing],
        stream: Option<&str>,
        ack_timeout: Duration,
    ) -> Vec<PublishResult> {
        let mut inbox = match self.take_inbox().await {
            Ok(inbox) => inbox,
            Err(error) => {
                return part.iter().map(|_| Err(PublishError::unavailable(error.to_string()))).collect();
            }
        };
        let first = inbox.next();
        let mut results: Vec<Option<PublishResult>> = Vec::with_capacity(part.len());
        let sending = async {
            let mut subject = None;
            for outgoing in part {
                let sent = self.send(outgoing, &mut subject, inbox.next_subject(), stream).await;
                results.push(sent.err().map(Err));
            }
        };
        tokio::select! {
            biased;
            () = sending => {}
            end = self.wait_end(Instant::now() + ack_timeout) => {
                results.resize_with(part.len(), || Some(Err(match end {
                    WaitEnd::Lost => lost_unsent(),
                    WaitEnd::TimedOut => PublishError::unknown(self.timeout_message()),
                })));
            }
        }
        let read = |index: usize, message: &Message| {
            error::classify_reply(
                message,
                part.get(index).map_or("", |outgoing| &outgoing.destination),
                stream,
            )
        };
        let end = tokio::select! {
            // Replies that have arrived are read first.
            biased;
            () = inbox.fill(first, &mut results, read) => WaitEnd::Lost,
            end = self.wait_end(Instant::now() + ack_timeout) => end,
        };
        if results.iter().all(Option::is_some) {
            self.idle_inboxes().push(inbox);
        }
        let unacknowledged = |subject: &str| match end {
            WaitEnd::Lost => PublishError::unknown("the connection was lost before the acknowledgement"),
            WaitEnd::TimedOut => self
                .last_server_error()
                .as_ref()
                .and_then(|last_server_error| error::permission_error(subject, last_server_error))
                .unwrap_or_else(|| PublishError::unknown(self.timeout_message())),
        };
        let result = |(result, outgoing): (Option<PublishResult>, &Outgoing)| {
            result.unwrap_or_else(|| Err(unacknowledged(&outgoing.destination)))
        };
        results.into_iter().zip(part).map(result).collect()
    }

    /// Hands a message to the client's connection. Success says nothing about the server.
    async fn send(
        &self,
        outgoing: &Outgoing,
        last: &mut Option<Subject>,
        reply_to: Subject,
        stream: Option<&str>,
    ) -> Result<(), PublishError> {
        let subject = match last {
            // Most messages have the same subject as the one before.
            Some(subject) if subject.as_str() == outgoing.destination => subject.clone(),
            _ => {
                wire::check_subject(&outgoing.destination).map_err(PublishError::reject)?;
                last.insert(outgoing.destination.as_str().into()).clone()
            }
        };
        let headers = wire::headers(outgoing, stream)?;
        if self.is_lost() {
            return Err(lost_unsent());
        }
        let body = outgoing.body.clone();
        let sent = self.client.publish_with_reply_and_headers(subject, reply_to, headers, body).await;
        sent.map_err(|error| error::classify_send_error(&error))
    }

    /// An idle inbox, or a new one. An inbox that still waits for a reply is never reused.
    async fn take_inbox(&self) -> Result<ReplyInbox, SubscribeError> {
        let idle = self.idle_inboxes().pop();
        match idle {
            Some(inbox) => Ok(inbox),
            None => ReplyInbox::open(&self.client).await,
        }
    }

    fn idle_inboxes(&self) -> MutexGuard<'_, Vec<ReplyInbox>> {
        self.idle_inboxes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns when no more acknowledgements are expected. One timer for all messages of a call: timers cost more than acknowledgements.
    async fn wait_end(&self, deadline: Instant) -> WaitEnd {
        tokio::select! {
            () = self.lost() => WaitEnd::Lost,
            () = sleep_until(deadline) => WaitEnd::TimedOut,
        }
    }

    /// Returns when the connection is lost.
    pub(super) async fn lost(&self) {
        let mut is_lost = self.is_lost.clone();
        // An error means that the client was dropped: the connection is lost, too.
        is_lost.wait_for(|is_lost| *is_lost).await.ok();
    }

    fn last_server_error(&self) -> MutexGuard<'_, Option<String>> {
        self.last_server_error.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn timeout_message(&self) -> String {
        match &*self.last_server_error() {
            Some(last_server_error) => {
                format!("no acknowledgement within the timeout; last server error: {last_server_error}")
            }
            None => "no acknowledgement within the timeout".to_owned(),
        }
    }

    pub(super) async fn close(&self) {
        // Every message was acknowledged before: nothing is lost.
        self.client.drain().await.ok();
    }
}

impl ReusableConnection for NatsConnection {
    fn is_usable(&self) -> bool {
        !self.is_lost()
    }
}

fn lost_unsent() -> PublishError {
    PublishError::unavailable("the connection was lost before the message was sent")
}
