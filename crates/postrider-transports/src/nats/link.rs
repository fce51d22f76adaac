//! A connection to NATS.

use super::{
    answer::{self, Answer},
    builder::NatsBuilder,
    inbox::Inbox,
    wire,
};
use crate::{line::Link, tls::choose_crypto};
use async_nats::{
    Client, Event, Message, Subject,
    client::SubscribeError,
    connection::State,
    jetstream::{Context, context::ContextBuilder},
};
use postrider_core::{Outgoing, PublishError};
use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};

pub(super) struct NatsLink {
    pub(super) context: Context,
    pub(super) client: Client,
    /// Those that no call reads now.
    inboxes: Mutex<Vec<Inbox>>,
    is_lost: watch::Receiver<bool>,
    is_doubtful: AtomicBool,
    /// What the server complained of last. It does not say of which message.
    complaint: Arc<Mutex<Option<String>>>,
}

/// Why nobody waits any more.
#[derive(Debug, Clone, Copy)]
enum Over {
    Lost,
    Late,
}

impl NatsLink {
    /// Connects, or tells why that was not possible.
    pub(super) async fn connect(options: &NatsBuilder) -> Result<Self, String> {
        choose_crypto();
        let (lose, is_lost) = watch::channel(false);
        let complaint = Arc::new(Mutex::new(None));
        let heard = Arc::clone(&complaint);
        let hear = move |event| {
            match event {
                Event::Disconnected | Event::Closed => {
                    lose.send_replace(true);
                }
                Event::ServerError(error) => {
                    *heard.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.to_string());
                }
                _ => {}
            }
            std::future::ready(())
        };
        let down = |error: &dyn std::fmt::Display| {
            format!("no connection to NATS at {}: {error}", options.addresses())
        };
        let client = options.for_client().map_err(|error| down(&error))?.event_callback(hear);
        let client = client.connect(&options.servers[..]).await.map_err(|error| down(&error))?;
        let context = ContextBuilder::new().timeout(options.ack_timeout).build(client.clone());
        Ok(Self {
            context,
            client,
            inboxes: Mutex::default(),
            is_lost,
            is_doubtful: AtomicBool::new(false),
            complaint,
        })
    }

    fn is_lost(&self) -> bool {
        *self.is_lost.borrow() || self.client.connection_state() != State::Connected
    }

    /// Sends all, then waits for what is said of each.
    pub(super) async fn publish(
        &self,
        part: &[Outgoing],
        stream: Option<&str>,
        patience: Duration,
    ) -> Vec<Answer> {
        let mut inbox = match self.inbox().await {
            Ok(inbox) => inbox,
            Err(error) => return part.iter().map(|_| Err(PublishError::down(error.to_string()))).collect(),
        };
        let first = inbox.next();
        let mut answers: Vec<Option<Answer>> = Vec::with_capacity(part.len());
        let sending = async {
            let mut subject = None;
            for outgoing in part {
                let sent = self.send(outgoing, &mut subject, inbox.subject(), stream).await;
                answers.push(sent.err().map(Err));
            }
        };
        tokio::select! {
            biased;
            () = sending => {}
            over = self.over(Instant::now() + patience) => {
                answers.resize_with(part.len(), || Some(Err(match over {
                    Over::Lost => lost_unsent(),
                    Over::Late => PublishError::unknown(self.silence()),
                })));
            }
        }
        let read = |place: usize, message: &Message| {
            answer::of(message, part.get(place).map_or("", |outgoing| &outgoing.destination), stream)
        };
        let over = tokio::select! {
            // What has arrived is read, whatever happened since.
            biased;
            () = inbox.fill(first, &mut answers, read) => Over::Lost,
            over = self.over(Instant::now() + patience) => over,
        };
        if answers.iter().all(Option::is_some) {
            self.inboxes().push(inbox);
        }
        let unanswered = || {
            Err(PublishError::unknown(match over {
                Over::Lost => "the connection was lost before the acknowledgement came".to_owned(),
                Over::Late => self.silence(),
            }))
        };
        answers.into_iter().map(|answer| answer.unwrap_or_else(unanswered)).collect()
    }

    /// Hands a message to the connection. That it did so says nothing about the server.
    async fn send(
        &self,
        outgoing: &Outgoing,
        last: &mut Option<Subject>,
        answer_to: Subject,
        stream: Option<&str>,
    ) -> Result<(), PublishError> {
        let subject = match last {
            // Most go where the one before went.
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
        let sent = self.client.publish_with_reply_and_headers(subject, answer_to, headers, body).await;
        sent.map_err(|error| answer::unsent(&error))
    }

    /// An inbox that nobody reads. One that still waits for an answer never comes back here.
    async fn inbox(&self) -> Result<Inbox, SubscribeError> {
        let idle = self.inboxes().pop();
        match idle {
            Some(inbox) => Ok(inbox),
            None => Inbox::open(&self.client).await,
        }
    }

    fn inboxes(&self) -> MutexGuard<'_, Vec<Inbox>> {
        self.inboxes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// When no acknowledgement comes any more. One for all messages of a call: timers cost more than acknowledgements.
    async fn over(&self, deadline: Instant) -> Over {
        tokio::select! {
            () = self.lost() => Over::Lost,
            () = sleep_until(deadline) => Over::Late,
        }
    }

    /// Returns when the connection is lost.
    pub(super) async fn lost(&self) {
        let mut is_lost = self.is_lost.clone();
        // An error says that the client is gone, which is a loss as well.
        is_lost.wait_for(|is_lost| *is_lost).await.ok();
    }

    fn silence(&self) -> String {
        let complaint = self.complaint.lock().unwrap_or_else(PoisonError::into_inner);
        match &*complaint {
            Some(complaint) => format!("no acknowledgement came in time; the server said: {complaint}"),
            None => "no acknowledgement came in time".to_owned(),
        }
    }

    pub(super) async fn close(&self) {
        // Everything was acknowledged before; there is nothing to lose.
        self.client.drain().await.ok();
    }
}

impl Link for NatsLink {
    fn is_good(&self) -> bool {
        !self.is_lost() && !self.is_doubtful.load(Ordering::Relaxed)
    }

    fn doubt(&self) {
        self.is_doubtful.store(true, Ordering::Relaxed);
    }
}

fn lost_unsent() -> PublishError {
    PublishError::down("the connection was lost before it was sent")
}
