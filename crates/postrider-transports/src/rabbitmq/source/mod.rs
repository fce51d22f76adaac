//! Receiving from a queue of RabbitMQ.
//!
//! One channel with one consumer at a time, a [`Session`]. What was delivered on it can be answered on it and nowhere else: when it ends,
//! for whatever reason, the broker puts everything that is unanswered back into the queue, and its tickets are stale.
//!
//! **What `Ok` means.** AMQP has no answer to an acknowledgement. But a channel is read in order, so every batch of answers ends with a
//! question that changes nothing, and once the broker has replied to that it has read the answers before it. What is not known then is
//! whether they are on a disk: a broker that is killed in that moment may deliver such a message again.

mod builder;
mod check;
mod in_hand;
mod reading;
mod session;

pub use builder::RabbitMqSourceBuilder;

use super::{
    line::{Lines, lock},
    probe::{self, Seen},
};
use async_trait::async_trait;
use lapin::types::ShortString;
use postrider_core::{Abilities, Answer, Finding, Invalid, Parcel, Redelivers, Source, SourceError, Ticket};
use reading::Reading;
use session::{Session, Slip};
use std::{
    fmt,
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::{sync::watch, time::timeout};

/// Receives from a queue of RabbitMQ.
///
/// It connects when it first receives, and again by itself. The queue has to exist.
///
/// - **It comes again at once.** RabbitMQ keeps no delays ([`Answer::Again`] is `basic.nack` with `requeue`). A quorum queue
///   counts that: say [`with_quorum`](RabbitMqSourceBuilder::with_quorum), and deliveries are told.
/// - **Refused** ([`Answer::Refuse`]) is `basic.nack` without `requeue`: it goes to the queue's dead-letter exchange, or is dropped where
///   there is none.
/// - **Nothing has to be extended**, and nothing can be: after `consumer_timeout`, half an hour unless the broker is configured
///   otherwise, the broker closes the channel, and what was in hand comes again.
///
/// ```no_run
/// # use postrider_core::{Answer, Source};
/// # use postrider_transports::rabbitmq::RabbitMqSource;
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let orders = RabbitMqSource::builder("amqp://guest:guest@localhost:5672/%2f", "orders")
///     .with_quorum(true)
///     .with_prefetch(100)
///     .build()?;
/// for parcel in orders.receive(10).await? {
///     println!("{:?}, for the time number {:?}", parcel.incoming.body, parcel.deliveries);
///     orders.answer(&[(parcel.ticket, Answer::Done)]).await;
/// }
/// # Ok(())
/// # }
/// ```
pub struct RabbitMqSource {
    lines: Lines,
    queue: ShortString,
    reading: Reading,
    prefetch: u16,
    is_quorum: bool,
    answer_within: Duration,
    current: Mutex<Option<Arc<Session>>>,
    /// One opens a session, the others wait for that.
    opening: tokio::sync::Mutex<()>,
    is_closed: watch::Sender<bool>,
}

impl RabbitMqSource {
    /// The queue of this name at the broker at `url`, with nothing special.
    ///
    /// # Errors
    /// When that is no URL of RabbitMQ, or no name of a queue.
    pub fn connect(url: impl Into<String>, queue: impl Into<String>) -> Result<Self, Invalid> {
        Self::builder(url, queue).build()
    }

    /// The queue of this name at the broker at `url`: `amqp://user:password@host:port/vhost`, or `amqps://` for TLS. Without a path the
    /// virtual host is `/`; in the path it is written `%2f`.
    pub fn builder(url: impl Into<String>, queue: impl Into<String>) -> RabbitMqSourceBuilder {
        RabbitMqSourceBuilder::new(url.into(), queue.into())
    }

    /// The session that works, or a new one.
    async fn session(&self) -> Result<Arc<Session>, SourceError> {
        if let Some(session) = self.working() {
            return Ok(session);
        }
        let _turn = self.opening.lock().await;
        if let Some(session) = self.working() {
            return Ok(session);
        }
        let line = self.lines.line().await.map_err(SourceError::down)?;
        let opening = Session::open(Arc::clone(&line), &self.queue, self.prefetch);
        let session = match timeout(self.answer_within, opening).await {
            Ok(opened) => Arc::new(opened?),
            Err(_) => {
                self.lines.retire(&line);
                return Err(self.silent());
            }
        };
        *lock(&self.current) = Some(Arc::clone(&session));
        Ok(session)
    }

    fn working(&self) -> Option<Arc<Session>> {
        lock(&self.current).clone().filter(|session| session.is_open())
    }

    /// The next call opens another one. What is in hand comes again.
    fn leave(&self, session: &Arc<Session>) {
        let mut current = lock(&self.current);
        if current.as_ref().is_some_and(|current| Arc::ptr_eq(current, session)) {
            *current = None;
        }
    }

    async fn take(&self, most: usize) -> Result<Vec<Parcel>, SourceError> {
        let session = self.session().await?;
        let deliveries = match session.take(most).await {
            Ok(deliveries) => deliveries,
            Err(error) => {
                self.leave(&session);
                return Err(error);
            }
        };
        let parcels = deliveries.into_iter().map(|delivery| {
            let ticket = Ticket::new(Slip::of(&session, delivery.delivery_tag));
            let deliveries = if self.is_quorum { reading::deliveries(&delivery) } else { None };
            let parcel = Parcel::new(self.reading.read(delivery), ticket);
            match deliveries {
                Some(times) => parcel.delivered(times),
                None => parcel,
            }
        });
        Ok(parcels.collect())
    }

    /// What the broker shows of the queue.
    async fn look(&self) -> Result<(Seen<probe::Queue>, check::Refused), SourceError> {
        let line = self.lines.line().await.map_err(SourceError::down)?;
        let looking = async {
            let seen = probe::queue(&line, &self.queue).await?;
            let refused = check::Refused::look(&line, &seen).await?;
            Ok::<_, lapin::Error>((seen, refused))
        };
        let looked = timeout(self.answer_within, looking).await.map_err(|_| self.silent())?;
        looked.map_err(SourceError::down)
    }

    fn silent(&self) -> SourceError {
        SourceError::down(format!("no answer in {:?}", self.answer_within))
    }
}

#[async_trait]
impl Source for RabbitMqSource {
    fn kind(&self) -> &'static str {
        "rabbitmq"
    }

    fn origin(&self) -> &str {
        self.queue.as_str()
    }

    fn abilities(&self) -> Abilities {
        let abilities = Abilities::answering(self.prefetch.into());
        if self.is_quorum { abilities.counting() } else { abilities }
    }

    async fn receive(&self, most: usize) -> Result<Vec<Parcel>, SourceError> {
        if most == 0 {
            return Ok(Vec::new());
        }
        let mut is_closed = self.is_closed.subscribe();
        tokio::select! {
            biased;
            _ = is_closed.wait_for(|is_closed| *is_closed) => Err(SourceError::down("it was closed")),
            taken = self.take(most) => taken,
        }
    }

    async fn answer(&self, answers: &[(Ticket, Answer)]) -> Vec<Result<(), SourceError>> {
        let gone =
            || Err(SourceError::stale("the channel on which it was received has ended: it comes again"));
        let Some(session) = self.working() else { return answers.iter().map(|_| gone()).collect() };
        let slips: Vec<_> =
            answers.iter().map(|(ticket, answer)| Some((session.tag(ticket)?, *answer))).collect();
        let known: Vec<_> = slips.iter().flatten().copied().collect();
        let told = session.tell(&known);
        let heard = if told.contains(&true) {
            timeout(self.answer_within, session.is_heard()).await.unwrap_or_else(|_| {
                self.lines.retire(session.line());
                Err(self.silent().to_string())
            })
        } else {
            Ok(())
        };
        if heard.is_err() {
            self.leave(&session);
        }
        let mut told = told.into_iter();
        let result = |slip: Option<_>| match slip.and_then(|_| told.next()) {
            None => gone(),
            Some(false) => Err(SourceError::stale("it was answered before")),
            Some(true) => heard.clone().map_err(|error| {
                SourceError::stale(format!(
                    "nobody knows whether the broker was told, it may come again: {error}"
                ))
            }),
        };
        slips.into_iter().map(result).collect()
    }

    async fn extend(&self, tickets: &[Ticket]) -> Vec<Result<(), SourceError>> {
        let session = self.working();
        let is_ours = |ticket| session.as_ref().is_some_and(|session| session.holds(ticket));
        let stale = || SourceError::stale("it was answered before, or its channel has ended");
        tickets.iter().map(|ticket| if is_ours(ticket) { Ok(()) } else { Err(stale()) }).collect()
    }

    /// For ever, unless the queue was declared with `x-message-ttl`. What a policy sets is not seen, and makes it shorter only.
    async fn redelivers(&self) -> Result<Redelivers, SourceError> {
        let (seen, _) = self.look().await?;
        Ok(match seen {
            Seen::Facts(queue) => check::redelivers(&queue),
            Seen::Hidden(why) => Redelivers::for_ever(format!("the broker does not show more: {why}")),
            Seen::Missing | Seen::Exclusive => {
                return Err(SourceError::down(format!("there is no queue {:?} for us", self.origin())));
            }
        })
    }

    /// Sees what AMQP shows, by declarations that are refused and change nothing. For that it takes the right to configure; without it there
    /// is a note. What a policy sets is not seen.
    async fn check(&self) -> Result<Vec<Finding>, SourceError> {
        let (seen, refused) = self.look().await?;
        Ok(check::of_place(&format!("queue {}", self.queue), seen, refused, self.is_quorum))
    }

    async fn close(&self) {
        if self.is_closed.send_replace(true) {
            return;
        }
        // Dropped before the connection is, it has nothing to say to a broker that has said goodbye.
        drop(lock(&self.current).take());
        self.lines.close().await;
    }
}

impl fmt::Debug for RabbitMqSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RabbitMqSource")
            .field("lines", &self.lines)
            .field("queue", &self.queue.as_str())
            .field("prefetch", &self.prefetch)
            .field("is_quorum", &self.is_quorum)
            .finish_non_exhaustive()
    }
}
