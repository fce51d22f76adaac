//! Receiving from a durable consumer of NATS JetStream.
//!
//! A pull request asks for so many messages and stays with the server for some seconds. One is under way at a time, and what it
//! brings waits in the client until it is received, so that a call may be dropped at any await. Whatever is not answered within the
//! consumer's `ack_wait` comes again, to whoever asks then.
//!
//! **What `Ok` means.** Every answer asks the server to confirm it, and all answers of a batch are under way at once. The answer is for
//! the message, not for the connection: after a connection was lost, it is given over the next one, and counts.

mod builder;
mod check;
mod in_hand;
mod reading;
mod session;

pub use builder::NatsSourceBuilder;

use super::{builder::NatsBuilder, link::NatsLink};
use crate::line::Link;
use async_nats::{client::Request, jetstream::AckKind};
use async_trait::async_trait;
use bytes::Bytes;
use futures_util::future::join_all;
use in_hand::{InHand, Slip};
use postrider_core::{Abilities, Answer, Finding, Invalid, Parcel, Redelivers, Source, SourceError, Ticket};
use session::{Delivery, Session};
use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::{
    sync::{Mutex, watch},
    time::timeout,
};

const A_YEAR: Duration = Duration::from_secs(365 * 24 * 60 * 60);
/// So many answers are under way at once.
const ANSWERS: usize = 500;

/// Receives from a durable pull consumer of NATS JetStream.
///
/// It connects when it first receives, and again by itself. Stream and consumer have to exist, unless
/// [`with_created_consumer`](NatsSourceBuilder::with_created_consumer) says how the latter is made.
///
/// It counts deliveries, keeps delays ([`Answer::Again`] is a `-NAK` with one), and messages have to be extended before the consumer's
/// `ack_wait` is over: how long that is, [`abilities`](Source::abilities) knows once it has connected. [`Answer::Refuse`] is `+TERM`: the
/// message stays in the stream as long as that keeps it, and never comes again.
///
/// ```no_run
/// # use postrider_core::{Answer, Source};
/// # use postrider_transports::nats::NatsSource;
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let orders = NatsSource::connect("nats://127.0.0.1:4222", "ORDERS", "billing")?;
/// for parcel in orders.receive(10).await? {
///     println!("{:?}, for the time number {:?}", parcel.incoming.body, parcel.deliveries);
///     orders.answer(&[(parcel.ticket, Answer::Done)]).await;
/// }
/// # Ok(())
/// # }
/// ```
pub struct NatsSource {
    connection: NatsBuilder,
    stream: String,
    durable: String,
    created: Option<builder::Created>,
    pull: usize,
    /// How long a message may be in hand, in nanoseconds.
    holds_for: AtomicU64,
    in_hand: InHand,
    current: Mutex<Option<Arc<Session>>>,
    is_closed: watch::Sender<bool>,
}

impl NatsSource {
    /// The durable consumer of a stream, on the server at `url`, with nothing special.
    ///
    /// # Errors
    /// When the URL cannot be read, or a name is none.
    pub fn connect(
        url: impl Into<String>,
        stream: impl Into<String>,
        durable: impl Into<String>,
    ) -> Result<Self, Invalid> {
        Self::builder(url, stream, durable).build()
    }

    /// The durable consumer of a stream, on the server at `url`, such as `nats://user:password@host:4222`, with `tls` for TLS; several
    /// with commas in between.
    pub fn builder(
        url: impl Into<String>,
        stream: impl Into<String>,
        durable: impl Into<String>,
    ) -> NatsSourceBuilder {
        NatsSourceBuilder::new(url.into(), stream.into(), durable.into())
    }

    /// The session that works, or a new one.
    async fn session(&self) -> Result<Arc<Session>, SourceError> {
        let mut current = self.current.lock().await;
        if let Some(session) = current.as_ref().filter(|session| session.link.is_good()) {
            return Ok(Arc::clone(session));
        }
        *current = None;
        if *self.is_closed.borrow() {
            return Err(closed());
        }
        let link = NatsLink::connect(&self.connection).await.map_err(SourceError::down)?;
        let session = Arc::new(Session::open(link, self).await?);
        let holds_for = u64::try_from(session.holds_for().as_nanos()).unwrap_or(u64::MAX);
        self.holds_for.store(holds_for, Ordering::Relaxed);
        *current = Some(Arc::clone(&session));
        Ok(session)
    }

    async fn take(&self, most: usize) -> Result<Vec<Parcel>, SourceError> {
        let session = self.session().await?;
        let deliveries = session.take(most.min(self.pull), self.connection.ack_timeout).await;
        let deliveries = deliveries.inspect_err(|_| session.link.doubt())?;
        let parcel = |Delivery { message, reply, sequence, times }| {
            let ticket = Ticket::new(self.in_hand.add(sequence, reply));
            Parcel::new(reading::read(&self.stream, message), ticket).delivered(times)
        };
        Ok(deliveries.into_iter().map(parcel).collect())
    }

    /// Tells the server, and waits until it has confirmed each. What a lost connection left open is told once more, over the next one:
    /// a word that was heard twice counts once.
    async fn tell(&self, words: &[Option<(&Slip, Bytes)>]) -> Vec<Result<(), SourceError>> {
        let mut told = Vec::with_capacity(words.len());
        for part in words.chunks(ANSWERS) {
            let mut once = self.tell_part(part).await;
            if once.iter().any(is_down) {
                let rest: Vec<_> = part
                    .iter()
                    .zip(&once)
                    .map(|(word, once)| word.clone().filter(|_| is_down(once)))
                    .collect();
                let again = self.tell_part(&rest).await;
                let open = once.iter_mut().zip(again).filter(|(once, _)| is_down(once));
                open.for_each(|(once, again)| *once = again);
            }
            told.extend(once);
        }
        told
    }

    async fn tell_part(&self, part: &[Option<(&Slip, Bytes)>]) -> Vec<Result<(), SourceError>> {
        let all = |error: &dyn Fn() -> SourceError| part.iter().map(|_| Err(error())).collect();
        if part.iter().all(Option::is_none) {
            return all(&stale);
        }
        let session = match self.session().await {
            Ok(session) => session,
            Err(error) => return all(&|| SourceError::down(error.to_string())),
        };
        let confirmed = part.iter().map(async |word| match word {
            Some((slip, word)) => session.confirm(slip.reply.clone(), word.clone()).await,
            None => Err(stale()),
        });
        timeout(self.connection.ack_timeout, join_all(confirmed)).await.unwrap_or_else(|_| {
            session.link.doubt();
            all(&|| SourceError::down("no confirmation came in time"))
        })
    }

    /// What is not ours any more needs no word.
    fn words<'t>(
        &self,
        tickets: impl Iterator<Item = (&'t Ticket, Bytes)>,
    ) -> Vec<Option<(&'t Slip, Bytes)>> {
        tickets.map(|(ticket, word)| Some((self.in_hand.slip(ticket)?, word))).collect()
    }
}

fn word(answer: Answer) -> AckKind {
    match answer {
        Answer::Done => AckKind::Ack,
        Answer::Again { after } if after.is_zero() => AckKind::Nak(None),
        Answer::Again { after } => AckKind::Nak(Some(after.min(A_YEAR))),
        Answer::Refuse => AckKind::Term,
    }
}

fn is_down(told: &Result<(), SourceError>) -> bool {
    matches!(told, Err(SourceError::Down { .. }))
}

fn stale() -> SourceError {
    SourceError::stale("it was answered before, or has come again since")
}

fn closed() -> SourceError {
    SourceError::down("it was closed")
}

#[async_trait]
impl Source for NatsSource {
    fn kind(&self) -> &'static str {
        "nats"
    }

    fn origin(&self) -> &str {
        &self.stream
    }

    fn abilities(&self) -> Abilities {
        let holds_for = Duration::from_nanos(self.holds_for.load(Ordering::Relaxed));
        Abilities::answering(ANSWERS).counting().delaying(A_YEAR).holding_for(holds_for)
    }

    async fn receive(&self, most: usize) -> Result<Vec<Parcel>, SourceError> {
        if most == 0 {
            return Ok(Vec::new());
        }
        let mut is_closed = self.is_closed.subscribe();
        tokio::select! {
            biased;
            _ = is_closed.wait_for(|is_closed| *is_closed) => Err(closed()),
            taken = self.take(most) => taken,
        }
    }

    async fn answer(&self, answers: &[(Ticket, Answer)]) -> Vec<Result<(), SourceError>> {
        let words = self.words(answers.iter().map(|(ticket, answer)| (ticket, word(*answer).into())));
        let told = self.tell(&words).await;
        for (word, told) in words.iter().zip(&told) {
            if let (Some((slip, _)), Ok(())) = (word, told) {
                slip.let_go();
            }
        }
        told
    }

    async fn extend(&self, tickets: &[Ticket]) -> Vec<Result<(), SourceError>> {
        let words = self.words(tickets.iter().map(|ticket| (ticket, AckKind::Progress.into())));
        self.tell(&words).await
    }

    async fn redelivers(&self) -> Result<Redelivers, SourceError> {
        let session = self.session().await?;
        let asked = check::redelivers(&session.link, &self.stream).await;
        asked.inspect_err(|_| session.link.doubt())
    }

    async fn check(&self) -> Result<Vec<Finding>, SourceError> {
        // What is missing is a finding, so that no session is needed.
        let link = NatsLink::connect(&self.connection).await.map_err(SourceError::down)?;
        let found = check::findings(&link, &self.stream, &self.durable, self.created.is_some()).await;
        link.close().await;
        found
    }

    async fn close(&self) {
        if self.is_closed.send_replace(true) {
            return;
        }
        // A call that connects gives way; one that nobody polls any more is not waited for.
        let current = timeout(self.connection.ack_timeout, self.current.lock()).await.ok();
        let Some(session) = current.and_then(|mut current| current.take()) else { return };
        let mut back = session.leave().await;
        back.extend(self.in_hand.drain());
        let back = back.into_iter().map(|reply| session.confirm(reply, AckKind::Nak(None).into()));
        timeout(self.connection.ack_timeout, join_all(back)).await.ok();
        session.link.close().await;
    }
}

impl fmt::Debug for NatsSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NatsSource")
            .field("connection", &self.connection)
            .field("stream", &self.stream)
            .field("durable", &self.durable)
            .finish_non_exhaustive()
    }
}
