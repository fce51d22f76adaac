//! A connection to NATS.

use super::{answer, builder::NatsBuilder, wire};
use crate::{line::Link, tls::choose_crypto};
use async_nats::{
    Client, Event,
    connection::State,
    jetstream::{
        Context,
        context::{ContextBuilder, PublishAckFuture, PublishErrorKind},
    },
};
use postrider_core::{Outgoing, PublishError, Receipt};
use std::{
    future::{Future, IntoFuture},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};
use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};

pub(super) struct NatsLink {
    pub(super) context: Context,
    pub(super) client: Client,
    is_lost: watch::Receiver<bool>,
    is_doubtful: AtomicBool,
    /// What the server complained of last. It does not say of which message.
    complaint: Arc<Mutex<Option<String>>>,
}

/// Why nobody waits any more.
#[derive(Debug, Clone, Copy)]
pub(super) enum Over {
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
        let context = ContextBuilder::new()
            .timeout(options.ack_timeout)
            .ack_timeout(options.ack_timeout)
            .max_ack_inflight(options.acks_pending)
            .backpressure_on_inflight(true)
            .build(client.clone());
        Ok(Self { context, client, is_lost, is_doubtful: AtomicBool::new(false), complaint })
    }

    fn is_lost(&self) -> bool {
        *self.is_lost.borrow() || self.client.connection_state() != State::Connected
    }

    /// Hands a message to the connection. That it did so says nothing about the server.
    pub(super) async fn send(
        &self,
        outgoing: &Outgoing,
        stream: Option<&str>,
    ) -> Result<PublishAckFuture, PublishError> {
        let message = wire::written(outgoing, stream)?;
        if self.is_lost() {
            return Err(PublishError::down("the connection was lost before it was sent"));
        }
        let sent = self.context.send_publish(outgoing.destination.clone(), message).await;
        sent.map_err(|error| answer::of(&error, &outgoing.destination))
    }

    /// Waits for what the stream says, or for the end of all waiting.
    pub(super) async fn acknowledged(
        &self,
        waiting: PublishAckFuture,
        outgoing: &Outgoing,
        stream: Option<&str>,
        over: impl Future<Output = Over>,
    ) -> Result<Receipt, PublishError> {
        tokio::select! {
            // What has arrived is read, whatever happened since.
            biased;
            ack = waiting.into_future() => match ack {
                Ok(ack) => answer::accepted(&ack, stream),
                Err(error) if error.kind() == PublishErrorKind::TimedOut => Err(PublishError::unknown(self.silence())),
                Err(error) => Err(answer::of(&error, &outgoing.destination)),
            },
            over = over => Err(PublishError::unknown(match over {
                Over::Lost => "the connection was lost before the acknowledgement came".to_owned(),
                Over::Late => self.silence(),
            })),
        }
    }

    /// When no acknowledgement comes any more. One for all messages of a call: timers cost more than acknowledgements.
    pub(super) async fn over(&self, deadline: Instant) -> Over {
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
