//! Receives from queues of SQS.

mod builder;
mod check;
mod link;
mod shelf;
mod wire;

pub use builder::SqsSourceBuilder;

use crate::aws::{AwsOptions, Trouble, plan::ENTRIES};
use async_trait::async_trait;
use aws_sdk_sqs::types::Message;
use futures_util::future::join_all;
use link::Link;
use postrider_core::{
    Abilities, Answer, Finding, Invalid, Lane, Parcel, Redelivers, Source, SourceError, Ticket,
};
use shelf::{Fetched, Held, Shelf};
use std::{
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};
use tokio::{sync::Notify, time::Instant};

/// For so long a message can be hidden after it was received.
const LONGEST: Duration = Duration::from_secs(12 * 60 * 60);
/// The service's clock began a while before ours.
const SLACK: Duration = Duration::from_secs(60);

/// Receives from a queue of SQS, standard or FIFO.
///
/// ```no_run
/// # use postrider_core::Source;
/// # use postrider_transports::sqs::{AwsOptions, SqsSource};
/// # use std::time::Duration;
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let source = SqsSource::builder(AwsOptions::new().with_region("eu-central-1"), "orders")
///     .with_visibility_timeout(Duration::from_secs(60))
///     .with_refused_to("orders-dead")
///     .build()?;
/// for finding in source.check().await? {
///     println!("{} {}: {} {}", finding.severity, finding.subject, finding.reason, finding.fix);
/// }
/// # Ok(())
/// # }
/// ```
///
/// | answer | what becomes of it |
/// |---|---|
/// | done | it is deleted; each message of a request by its own result |
/// | again | it is hidden for so long, up to 12 hours after it was received, and then comes again |
/// | refuse | it is sent to the queue of [`with_refused_to`](SqsSourceBuilder::with_refused_to), if there is one, and deleted |
///
/// **A message is ours** for as long as the visibility timeout, whatever becomes of the connection: what a process that died had comes again after
/// that, and what a closed source had comes at once. An answer that comes too late is stale.
///
/// **FIFO**: the lane is the message group. While something of a group is in hand, the service hands out nothing more of it; after
/// [`Answer::Again`], what was fetched behind it goes back as well.
pub struct SqsSource(Arc<Inner>);

struct Inner {
    link: Link,
    shelf: Mutex<Shelf>,
    /// How many requests may wait for messages. One, while they do not come back full.
    eager: AtomicUsize,
    change: Notify,
}

/// A ticket, and whose it is.
struct Slip(Weak<Inner>, Arc<Held>);

impl SqsSource {
    /// Receives from a queue, by its name in the account and region of the options or by its URL.
    pub fn builder(options: AwsOptions, queue: impl Into<String>) -> SqsSourceBuilder {
        SqsSourceBuilder::new(options, queue.into())
    }

    /// Receives from a queue as a builder does that was told nothing.
    ///
    /// # Errors
    /// Names the option that makes no sense.
    pub fn connect(options: AwsOptions, queue: impl Into<String>) -> Result<Self, Invalid> {
        Self::builder(options, queue).build()
    }

    fn new(link: Link) -> Self {
        let (shelf, change) = (Mutex::default(), Notify::new());
        Self(Arc::new(Inner { link, shelf, eager: AtomicUsize::new(1), change }))
    }

    fn held<'t>(&self, ticket: &'t Ticket) -> Result<&'t Arc<Held>, SourceError> {
        match ticket.inside::<Slip>() {
            Some(Slip(source, held)) if source.as_ptr() == Arc::as_ptr(&self.0) => Ok(held),
            _ => Err(SourceError::stale("another source received it")),
        }
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, Shelf> {
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What there is; or sees to it that something comes.
    fn give(self: &Arc<Self>, most: usize) -> Result<Vec<Parcel>, SourceError> {
        let settings = &self.link.settings;
        let mut shelf = self.lock();
        if shelf.is_closed {
            return Err(SourceError::down("it was closed"));
        }
        let given = shelf.give(most, settings.hold);
        if !given.is_empty() {
            return Ok(given);
        }
        if let Some(trouble) = shelf.trouble.take() {
            return Err(trouble.into());
        }
        let wanted = most.min(settings.prefetch);
        while shelf.fetching < wanted.div_ceil(ENTRIES).min(self.eager.load(Relaxed)) {
            shelf.fetching += 1;
            // On its own: whoever waits may stop to, and what comes would be hidden from everybody.
            tokio::spawn(Arc::clone(self).fetch(wanted));
        }
        Ok(given)
    }

    async fn fetch(self: Arc<Self>, most: usize) {
        let fetched = self.link.fetch(most).await;
        let late = self.put(fetched);
        self.change.notify_waiters();
        self.give_back(&late, Duration::ZERO).await;
    }

    /// Keeps what was fetched; what comes after the closing goes back.
    fn put(self: &Arc<Self>, fetched: Result<Vec<Message>, Trouble>) -> Vec<Arc<Held>> {
        let settings = &self.link.settings;
        let mut shelf = self.lock();
        shelf.fetching -= 1;
        let now = Instant::now();
        shelf.in_hand.retain(|_, (until, _)| *until > now);
        match fetched {
            Ok(messages) => {
                let most = settings.prefetch.div_ceil(ENTRIES);
                let eager =
                    if messages.len() < ENTRIES { 1 } else { (self.eager.load(Relaxed) * 2).min(most) };
                self.eager.store(eager, Relaxed);
                let first = shelf.next;
                shelf.next += messages.len() as u64;
                let fetched = messages
                    .into_iter()
                    .zip(first..)
                    .filter_map(|(message, number)| self.fetched(message, number));
                shelf.ready.extend(fetched);
            }
            Err(trouble) => {
                self.eager.store(1, Relaxed);
                shelf.trouble = Some(trouble);
            }
        }
        if shelf.is_closed { shelf.clear() } else { Vec::new() }
    }

    fn fetched(self: &Arc<Self>, message: Message, number: u64) -> Option<Fetched> {
        let settings = &self.link.settings;
        let incoming = wire::incoming(&settings.queue, &message);
        // A standard queue may know groups, too, and keeps no order in them.
        let is_fifo = settings.queue.ends_with(".fifo");
        let lane = wire::group(&message).filter(|_| is_fifo).map(Lane::of);
        let deliveries = wire::deliveries(&message);
        let held = Arc::new(Held {
            number,
            // Without a handle it is nobody's, and comes again.
            handle: message.receipt_handle()?.into(),
            lane,
            since: Instant::now(),
            message: settings.refused_to.is_some().then_some(message),
            is_answered: AtomicBool::new(false),
        });
        let mut parcel = Parcel::new(incoming, Ticket::new(Slip(Arc::downgrade(self), Arc::clone(&held))));
        parcel.deliveries = deliveries;
        parcel.lane = lane;
        Some(Fetched { parcel, held })
    }

    /// What cannot be told comes again all the same, later.
    async fn give_back(&self, held: &[Arc<Held>], after: Duration) {
        let handles: Vec<_> = held.iter().map(|held| (Arc::clone(&held.handle), after)).collect();
        self.link.hide(&handles).await;
    }

    /// Sends what is refused where it belongs.
    async fn put_aside(&self, held: &Held) -> Result<(), SourceError> {
        match (&self.link.settings.refused_to, &held.message) {
            (Some(to), Some(message)) => self.link.put_aside(to, message).await,
            _ => Ok(()),
        }
    }
}

/// What is to be asked for, and for which answers of a batch.
#[derive(Default)]
struct Errands {
    delete: Vec<(usize, Arc<Held>)>,
    hide: Vec<(usize, Arc<Held>, Duration)>,
}

impl Drop for SqsSource {
    /// Nobody can answer any more. What was in hand comes again when its time is over.
    fn drop(&mut self) {
        self.0.lock().is_closed = true;
        self.0.change.notify_waiters();
    }
}

#[async_trait]
impl Source for SqsSource {
    fn kind(&self) -> &'static str {
        "sqs"
    }

    fn origin(&self) -> &str {
        &self.0.link.settings.queue
    }

    fn abilities(&self) -> Abilities {
        Abilities::answering(ENTRIES)
            .counting()
            .delaying(LONGEST - SLACK)
            .holding_for(self.0.link.settings.hold)
    }

    async fn receive(&self, most: usize) -> Result<Vec<Parcel>, SourceError> {
        loop {
            let change = self.0.change.notified();
            let given = self.0.give(most)?;
            if !given.is_empty() || most == 0 {
                return Ok(given);
            }
            change.await;
        }
    }

    async fn answer(&self, answers: &[(Ticket, Answer)]) -> Vec<Result<(), SourceError>> {
        let inner = &self.0;
        let mut told: Vec<Result<(), SourceError>> = (0..answers.len()).map(|_| Ok(())).collect();
        let (mut errands, mut refused, mut behind) = (Errands::default(), Vec::new(), Vec::new());
        for (place, (ticket, answer)) in answers.iter().enumerate() {
            let mut shelf = inner.lock();
            let held = match self.held(ticket) {
                Ok(held) if !shelf.is_closed && !held.is_answered.swap(true, Relaxed) => Arc::clone(held),
                Ok(_) => {
                    told[place] = Err(SourceError::stale("it was answered before, or the source was closed"));
                    continue;
                }
                Err(error) => {
                    told[place] = Err(error);
                    continue;
                }
            };
            match answer {
                Answer::Done => errands.delete.push((place, held)),
                Answer::Refuse => refused.push((place, held)),
                Answer::Again { after } => {
                    // The limit counts from when it was received.
                    let after = (*after).min(LONGEST.saturating_sub(held.since.elapsed() + SLACK));
                    let mates = held.lane.map(|lane| shelf.take_behind(lane)).unwrap_or_default();
                    behind.extend(mates.into_iter().map(|mate| (mate, after)));
                    errands.hide.push((place, held, after));
                }
            }
        }
        let put_aside = join_all(refused.iter().map(|(_, held)| inner.put_aside(held))).await;
        for ((place, held), result) in refused.into_iter().zip(put_aside) {
            match result {
                Ok(()) => errands.delete.push((place, held)),
                Err(error) => {
                    held.is_answered.store(false, Relaxed);
                    told[place] = Err(error);
                }
            }
        }
        let delete: Vec<_> = errands.delete.iter().map(|(_, held)| Arc::clone(&held.handle)).collect();
        let hide = errands.hide.iter().map(|(_, held, after)| (Arc::clone(&held.handle), *after));
        let hide: Vec<_> =
            hide.chain(behind.iter().map(|(mate, after)| (Arc::clone(&mate.handle), *after))).collect();
        let (deleted, hidden) = tokio::join!(inner.link.delete(&delete), inner.link.hide(&hide));
        let hides = errands.hide.into_iter().map(|(place, held, _)| (place, held));
        // Those that were only behind somebody are nobody's answer.
        let results = errands.delete.into_iter().zip(deleted).chain(hides.zip(hidden));
        let mut shelf = inner.lock();
        for ((place, held), result) in results {
            match &result {
                Err(SourceError::Down { .. }) => held.is_answered.store(false, Relaxed),
                _ => drop(shelf.in_hand.remove(&held.number)),
            }
            told[place] = result;
        }
        told
    }

    async fn extend(&self, tickets: &[Ticket]) -> Vec<Result<(), SourceError>> {
        let hold = self.0.link.settings.hold;
        let ours = |ticket| match self.held(ticket)? {
            held if held.is_answered.load(Relaxed) => Err(SourceError::stale("it was answered before")),
            held => Ok(held),
        };
        let ours: Vec<_> = tickets.iter().map(ours).collect();
        let handles: Vec<_> = ours.iter().flatten().map(|held| (Arc::clone(&held.handle), hold)).collect();
        let mut hidden = self.0.link.hide(&handles).await.into_iter();
        let mut shelf = self.0.lock();
        let told = ours.into_iter().map(|held| {
            let held = held?;
            hidden.next().unwrap_or_else(|| Err(SourceError::down("it was not asked for")))?;
            if let Some((until, _)) = shelf.in_hand.get_mut(&held.number) {
                *until = Instant::now() + hold;
            }
            Ok(())
        });
        told.collect()
    }

    async fn redelivers(&self) -> Result<Redelivers, SourceError> {
        Ok(self.0.link.retention().await?)
    }

    async fn check(&self) -> Result<Vec<Finding>, SourceError> {
        Ok(self.0.link.findings().await?)
    }

    async fn close(&self) {
        let ours = {
            let mut shelf = self.0.lock();
            shelf.is_closed = true;
            shelf.clear()
        };
        self.0.change.notify_waiters();
        let ours: Vec<_> = ours.into_iter().filter(|held| !held.is_answered.swap(true, Relaxed)).collect();
        self.0.give_back(&ours, Duration::ZERO).await;
    }
}

impl fmt::Debug for SqsSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqsSource").field("settings", &self.0.link.settings).finish_non_exhaustive()
    }
}
