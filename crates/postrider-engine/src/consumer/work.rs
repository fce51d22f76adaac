//! What a consumer does with a batch of messages, and what it then answers.

use super::{
    batch::{Attempt, Piece},
    count::{Consumed, Counts},
    hall::Hall,
    handler::Handlers,
    mail::{Content, Mail, arrival_of},
};
use crate::{
    carry::{
        Carrier, Subscription,
        trouble::{Backoff, Trouble},
    },
    failure::{Failure, Next},
    judge::ErrorText,
    worker::context::Shared,
};
use postrider_core::{
    Abilities, Admission, Answer, Arrival, ConsumerName, Error, Lane, QueueName, Reason, Receive, Source,
    Ticket,
    hlc::Clock,
    retry::{Attempt as Failed, Retry, Verdict, decide},
};
use std::{
    collections::{BTreeMap, HashSet},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::{Duration, SystemTime},
};
use tokio::{
    sync::Semaphore,
    time::{Instant, sleep},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// Everything that a consumer is made of. It is only read.
pub(super) struct Work<R: Receive> {
    pub(super) name: ConsumerName,
    /// Whose dead letters parked messages are.
    pub(super) queue: QueueName,
    /// Where messages come from, in words.
    pub(super) origin: String,
    pub(super) source: Arc<dyn Source>,
    pub(super) abilities: Abilities,
    pub(super) store: R,
    pub(super) handlers: Handlers<R::Tx>,
    pub(super) shared: Arc<Shared>,
    pub(super) subscription: Arc<Subscription>,
    pub(super) carrier: Carrier,
    pub(super) counts: Counts,
    pub(super) trouble: Trouble,
    pub(super) traps: Vec<String>,
    pub(super) clock: Option<Arc<Clock>>,
    pub(super) error_text: ErrorText,
    pub(super) concurrency: usize,
    pub(super) together: usize,
    pub(super) in_hand: usize,
    pub(super) max_deliveries: Option<u32>,
    pub(super) in_place: Option<Arc<dyn Retry>>,
    pub(super) again: Arc<dyn Retry>,
    pub(super) restart_within: Duration,
    pub(super) keep_marks_for: Option<Duration>,
    pub(super) resent_within: Duration,
    pub(super) redelivered_within: Option<Duration>,
}

/// How a message ended here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Processed,
    Duplicate,
    Parked,
    /// Parked, and told to be of no use.
    Refused,
    /// It failed, and is handed back.
    Failed(Duration),
    /// It is handed back, and that is no failure.
    Back(Duration),
}

/// What is shared by the loops of a consumer that runs.
#[derive(Debug)]
pub(super) struct Floor {
    pub(super) hall: Hall,
    /// How many more messages may be received.
    pub(super) room: Semaphore,
    /// How many calls that receive have begun.
    pub(super) calls: AtomicU64,
    pub(super) stop: CancellationToken,
    /// Messages that are handed back later.
    pub(super) porch: TaskTracker,
    held: Mutex<BTreeMap<u64, Ticket>>,
    next: AtomicU64,
    pub(super) came_at: Mutex<Instant>,
}

/// The first and the longest pause between two tries of a database that fails.
const PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));
/// The longest that a message is kept in hand because its broker cannot delay it.
const HOLD_AT_MOST: Duration = Duration::from_secs(30);

impl Floor {
    pub(super) fn new(room: usize) -> Self {
        Self {
            hall: Hall::default(),
            room: Semaphore::new(room),
            calls: AtomicU64::new(0),
            stop: CancellationToken::new(),
            porch: TaskTracker::new(),
            held: Mutex::default(),
            next: AtomicU64::new(0),
            came_at: Mutex::new(Instant::now()),
        }
    }

    /// The tickets of everything in hand.
    pub(super) fn tickets(&self) -> Vec<Ticket> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// Remembers that these have to be extended.
    pub(super) fn hold(&self, mails: &mut [Mail]) {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        for mail in mails {
            let number = self.next.fetch_add(1, SeqCst) + 1;
            mail.held_as = number;
            held.insert(number, mail.ticket.clone());
        }
    }

    fn let_go(&self, mails: &[&Mail]) {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        for mail in mails {
            held.remove(&mail.held_as);
        }
    }
}

impl<R: Receive> Work<R> {
    /// One of the loops that handle messages.
    pub(super) async fn run(self: Arc<Self>, floor: Arc<Floor>) {
        while let Some(batch) = floor.hall.take(self.concurrency, self.together).await {
            let lanes: HashSet<Lane> = batch.iter().filter_map(|mail| mail.lane).collect();
            let begun = Instant::now();
            let ends = self.handle_all(&batch, &floor.stop).await;
            self.counts.handled(begun.elapsed());
            self.count(&ends);
            self.answer_all(batch, ends, &floor).await;
            floor.hall.end(lanes);
        }
    }

    async fn handle_all(&self, batch: &[Mail], stop: &CancellationToken) -> Vec<End> {
        let mut ends = vec![None; batch.len()];
        let mut pieces: Vec<(usize, Piece<'_>)> = Vec::new();
        for (place, mail) in batch.iter().enumerate() {
            match &mail.content {
                Content::Read(letter) => {
                    let is_counted = self.is_counted_here(mail);
                    pieces.push((place, Piece { letter, deliveries: mail.deliveries, is_counted }));
                }
                Content::Unreadable(incoming, invalid) => {
                    let park = || self.park_unreadable(incoming, invalid, mail.deliveries);
                    ends[place] = Some(self.persistently(stop, park).await);
                }
            }
        }
        self.count_deliveries(&mut pieces, stop).await;
        let mut failed = None;
        if pieces.len() > 1 && !pieces.iter().any(|(_, piece)| self.is_too_often(piece)) {
            let together: Vec<Piece<'_>> = pieces.iter().map(|(_, piece)| *piece).collect();
            match self.attempt(&together).await {
                Attempt::Committed(admitted) => {
                    for ((place, _), admission) in pieces.drain(..).zip(admitted) {
                        ends[place] = Some(ended(admission));
                    }
                }
                // Each for itself, so that one does no harm to the others.
                Attempt::Failed { failure, culprit } => {
                    failed = culprit.and_then(|culprit| Some((pieces.get(culprit)?.0, failure)));
                }
                Attempt::Unavailable(error) => self.trouble.happened("receiving", &error),
            }
        }
        let (mut halted, mut unrun) = (HashSet::new(), Vec::new());
        for (place, piece) in pieces {
            let lane = batch[place].lane;
            if lane.is_some_and(|lane| halted.contains(&lane)) {
                unrun.extend(piece.is_counted.then(|| arrival_of(piece.letter)));
                ends[place] = Some(End::Back(Duration::ZERO));
                continue;
            }
            let earlier = failed.take_if(|(culprit, _)| *culprit == place).map(|(_, failure)| failure);
            let end = if self.is_too_often(&piece) {
                self.persistently(stop, || self.park_unrun(piece)).await
            } else {
                self.handle_alone(piece, earlier, stop).await
            };
            if matches!(end, End::Failed(_) | End::Back(_)) {
                halted.extend(lane);
            }
            ends[place] = Some(end);
        }
        if !unrun.is_empty() {
            // They were not begun. Where that cannot be told, they may be parked too soon, and nothing else.
            self.store.count_all(&self.name, &unrun, -1).await.ok();
        }
        ends.into_iter().map(|end| end.unwrap_or(End::Back(Duration::ZERO))).collect()
    }

    fn is_too_often(&self, piece: &Piece<'_>) -> bool {
        self.max_deliveries.is_some_and(|max| piece.deliveries.is_some_and(|deliveries| deliveries > max))
    }

    /// Whether the inbox counts how often it was delivered: where the broker does not, and where it counts what was handed back only
    /// because another message of its lane had failed.
    fn is_counted_here(&self, mail: &Mail) -> bool {
        self.max_deliveries.is_some() && (mail.deliveries.is_none() || mail.lane.is_some())
    }

    async fn count_deliveries(&self, pieces: &mut [(usize, Piece<'_>)], stop: &CancellationToken) {
        let mut counted: Vec<&mut Piece<'_>> =
            pieces.iter_mut().map(|(_, piece)| piece).filter(|piece| piece.is_counted).collect();
        if counted.is_empty() {
            return;
        }
        let arrivals: Vec<Arrival> = counted.iter().map(|piece| arrival_of(piece.letter)).collect();
        let mut pauses = Backoff::new(PAUSES.0, PAUSES.1);
        loop {
            match self.store.count_all(&self.name, &arrivals, 1).await {
                Ok(counts) => {
                    self.trouble.is_over();
                    for (piece, count) in counted.iter_mut().zip(counts) {
                        piece.deliveries = Some(count);
                    }
                    return;
                }
                Err(error) => self.trouble.happened("counting deliveries", &error),
            }
            if !pause(pauses.pause(), stop).await {
                return;
            }
        }
    }

    /// Handles one message in a transaction of its own, as often as the policy says.
    async fn handle_alone(
        &self,
        piece: Piece<'_>,
        mut earlier: Option<Failure>,
        stop: &CancellationToken,
    ) -> End {
        let begun = Instant::now();
        let mut pauses = Backoff::new(PAUSES.0, PAUSES.1);
        let mut tries = 0;
        loop {
            let failure = match earlier.take() {
                Some(failure) => failure,
                None => match self.attempt(&[piece]).await {
                    Attempt::Committed(admitted) => {
                        self.trouble.is_over();
                        return ended(admitted.first().copied().unwrap_or(Admission::Duplicate));
                    }
                    Attempt::Failed { failure, .. } => failure,
                    Attempt::Unavailable(error) => {
                        self.trouble.happened("receiving", &error);
                        if !pause(pauses.pause(), stop).await {
                            return End::Back(Duration::ZERO);
                        }
                        continue;
                    }
                },
            };
            tries += 1;
            let attempt = Failed { number: tries, elapsed: begun.elapsed(), error: failure.kind() };
            if matches!(failure.next(), Next::Retry | Next::RetryAfter(_))
                && let Some(in_place) = &self.in_place
                && let Verdict::After(after) = verdict(in_place.as_ref(), &attempt)
                && pause(after, stop).await
            {
                tracing::debug!(name: "postrider.tried_again", consumer = %self.name, message = %piece.letter.id, error = failure.kind());
                continue;
            }
            return self.give_back(piece, &failure, stop).await;
        }
    }

    /// What becomes of a message whose handler failed.
    async fn give_back(&self, piece: Piece<'_>, failure: &Failure, stop: &CancellationToken) -> End {
        let letter = piece.letter;
        let reason = match failure.next() {
            Next::Snooze(after) => return End::Back(after),
            Next::Reject => Reason::Rejected,
            Next::Undecodable => Reason::Undecodable,
            Next::Retry | Next::RetryAfter(_) => {
                let elapsed = letter.sent_at.and_then(|at| SystemTime::now().duration_since(at).ok());
                let (number, elapsed) = (piece.deliveries.unwrap_or(1), elapsed.unwrap_or_default());
                let attempt = Failed { number, elapsed, error: failure.kind() };
                match (verdict(self.again.as_ref(), &attempt), failure.next()) {
                    (Verdict::GiveUp, _) => Reason::RetriesExhausted,
                    (Verdict::After(_), Next::RetryAfter(after)) | (Verdict::After(after), _) => {
                        tracing::info!(
                            name: "postrider.handed_back",
                            consumer = %self.name, message = %letter.id, error = failure.kind(), ?after,
                            "failed; it is handed back to come again"
                        );
                        return End::Failed(after);
                    }
                }
            }
        };
        self.persistently(stop, || self.park(piece, reason, failure)).await
    }

    /// Does what only a database that fails can keep from being done. When the consumer stops first, the message goes back.
    async fn persistently<F: Future<Output = Result<End, Error>>>(
        &self,
        stop: &CancellationToken,
        mut act: impl FnMut() -> F,
    ) -> End {
        let mut pauses = Backoff::new(PAUSES.0, PAUSES.1);
        loop {
            match act().await {
                Ok(end) => {
                    self.trouble.is_over();
                    return end;
                }
                Err(error) => self.trouble.happened("parking", &error),
            }
            if !pause(pauses.pause(), stop).await {
                return End::Back(Duration::ZERO);
            }
        }
    }

    fn count(&self, ends: &[End]) {
        let mut consumed = Consumed::default();
        for end in ends {
            match end {
                End::Processed => consumed.processed += 1,
                End::Duplicate => consumed.duplicates += 1,
                End::Parked | End::Refused => consumed.parked += 1,
                End::Failed(_) => consumed.failed += 1,
                End::Back(_) => {}
            }
        }
        self.counts.add(consumed);
    }

    /// Tells the source. What is to come again later, where the source cannot delay it, stays in hand until then.
    async fn answer_all(self: &Arc<Self>, batch: Vec<Mail>, ends: Vec<End>, floor: &Arc<Floor>) {
        let mut now: Vec<(Mail, Answer)> = Vec::new();
        let mut behind: Vec<Mail> = Vec::new();
        for (mut mail, end) in batch.into_iter().zip(ends) {
            let after = match end {
                End::Processed | End::Duplicate | End::Parked => {
                    now.push((mail, Answer::Done));
                    continue;
                }
                End::Refused => {
                    now.push((mail, Answer::Refuse));
                    continue;
                }
                End::Failed(after) | End::Back(after) => after,
            };
            if let Some(lane) = mail.lane {
                behind.extend(floor.hall.halt(lane, &mut mail));
            }
            match self.abilities.delays {
                Some(longest) => now.push((mail, Answer::Again { after: after.min(longest) })),
                None if after.is_zero() => now.push((mail, Answer::AT_ONCE)),
                None => {
                    let (work, porch) = (Arc::clone(self), Arc::clone(floor));
                    floor.porch.spawn(async move {
                        pause(after.min(HOLD_AT_MOST), &porch.stop).await;
                        work.tell(vec![(mail, Answer::AT_ONCE)], &porch).await;
                    });
                }
            }
        }
        self.counts.handed_back(behind.len());
        now.extend(behind.into_iter().map(|mail| (mail, Answer::AT_ONCE)));
        self.tell(now, floor).await;
    }

    /// Hands back what was not begun.
    pub(super) async fn hand_back(&self, mails: Vec<Mail>, floor: &Floor) {
        self.counts.handed_back(mails.len());
        self.tell(mails.into_iter().map(|mail| (mail, Answer::AT_ONCE)).collect(), floor).await;
    }

    async fn tell(&self, answers: Vec<(Mail, Answer)>, floor: &Floor) {
        if answers.is_empty() {
            return;
        }
        let tickets: Vec<_> = answers.iter().map(|(mail, answer)| mail.answered(*answer)).collect();
        let told = self.source.answer(&tickets).await;
        for error in told.iter().filter_map(|told| told.as_ref().err()) {
            self.counts.answer_lost();
            tracing::warn!(name: "postrider.answer_lost", consumer = %self.name, %error, "the broker was not told; the message comes again");
        }
        let call = floor.calls.load(SeqCst);
        for (mail, answer) in &answers {
            if let (Some(lane), Answer::Again { .. }) = (mail.lane, answer) {
                floor.hall.told(lane, mail.halt, call);
            }
        }
        if self.abilities.holds_for.is_some() {
            floor.let_go(&answers.iter().map(|(mail, _)| mail).collect::<Vec<_>>());
        }
        floor.room.add_permits(answers.len());
        self.counts.in_hand(self.in_hand - floor.room.available_permits().min(self.in_hand));
    }
}

/// Its generator must not live across an await.
fn verdict(retry: &dyn Retry, failed: &Failed<'_>) -> Verdict {
    decide(retry, failed, &mut rand::rng())
}

fn ended(admission: Admission) -> End {
    match admission {
        Admission::First => End::Processed,
        Admission::Duplicate => End::Duplicate,
    }
}

/// Waits, unless it is time to stop. Answers whether it waited to the end.
async fn pause(length: Duration, stop: &CancellationToken) -> bool {
    tokio::select! {
        () = sleep(length) => true,
        () = stop.cancelled() => false,
    }
}
