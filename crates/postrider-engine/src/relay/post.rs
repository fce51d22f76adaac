//! The post office of one destination: it sends what comes in together.
//!
//! Deliveries hand in their messages, alone or many at once, and wait for the answers. Clerks send: one as soon as there is something, another
//! one whenever a full batch waits, up to the limit. What comes in while they are away goes with the next batch, so batches grow
//! with the load and nobody waits for a batch to fill. A clerk is a task of its own: a delivery that is dropped while its
//! message is under way harms nobody else's.

use super::breaker::Breaker;
use crate::carry::pace::Pace;
use futures_util::FutureExt;
use metrics::{Counter, Histogram, counter, histogram};
use postrider_core::{Capacity, Outgoing, PublishError, Receipt, Transport};
use std::{
    collections::VecDeque,
    fmt,
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
    vec,
};
use tokio::{
    sync::mpsc,
    time::{Instant, sleep, timeout},
};
use tracing::Instrument;

pub(super) type Answer = Result<Receipt, PublishError>;
/// Answers that came together, by the places of their messages.
pub(super) type Answers = Vec<(usize, Answer)>;

pub(super) struct Post {
    pub(super) destination: String,
    pub(super) transport: Arc<dyn Transport>,
    pub(super) capacity: Capacity,
    pub(super) timeout: Duration,
    pub(super) clerks: usize,
    pub(super) pace: Option<Pace>,
    pub(super) breaker: Arc<Breaker>,
    counter: Mutex<Desk>,
    meter: Meter,
}

/// What waits to be sent, and who sends.
#[derive(Default)]
struct Desk {
    sacks: VecDeque<Sack>,
    /// Messages in all of them.
    waiting: usize,
    clerks: usize,
}

/// Messages that were handed in together, each with its place among them.
struct Sack {
    messages: vec::IntoIter<(usize, Outgoing)>,
    answers: mpsc::UnboundedSender<Answers>,
}

/// What goes together.
#[derive(Default)]
struct Batch {
    outgoing: Vec<Outgoing>,
    /// Who waits for the answers, in the order of the messages, and the places of theirs.
    waiting: Vec<(mpsc::UnboundedSender<Answers>, Vec<usize>)>,
}

impl Batch {
    fn fill_from(&mut self, sack: &mut Sack, count: usize) {
        // Whoever was told of no answers would take that for the end.
        if count > 0 {
            let (places, outgoing): (Vec<_>, Vec<_>) = sack.messages.by_ref().take(count).unzip();
            self.outgoing.extend(outgoing);
            self.waiting.push((sack.answers.clone(), places));
        }
    }
}

struct Meter {
    accepted: Counter,
    duplicates: Counter,
    failed: [(&'static str, Counter); 4],
    batch: Histogram,
    took: Histogram,
}

impl Post {
    pub(super) fn new(
        destination: String,
        transport: Arc<dyn Transport>,
        capacity: Capacity,
        (timeout, clerks): (Duration, usize),
        pace: Option<Pace>,
        breaker: Arc<Breaker>,
    ) -> Self {
        let meter = Meter::new(&destination);
        Self {
            destination,
            transport,
            capacity,
            timeout,
            clerks,
            pace,
            breaker,
            counter: Mutex::default(),
            meter,
        }
    }

    /// Sends a message and waits for its answer.
    pub(super) async fn send(self: &Arc<Self>, outgoing: Outgoing) -> Answer {
        let answers = self.send_all(vec![(0, outgoing)]).recv().await;
        answers.and_then(|mut answers| answers.pop()).map_or_else(|| Err(unanswered()), |(_, answer)| answer)
    }

    /// Sends messages. Their answers come batch by batch, each with the place that was given; those that are missing when no more
    /// come are [`unanswered`].
    pub(super) fn send_all(
        self: &Arc<Self>,
        messages: Vec<(usize, Outgoing)>,
    ) -> mpsc::UnboundedReceiver<Answers> {
        let (answers, answered) = mpsc::unbounded_channel();
        for _ in 0..self.hand_in(Sack { messages: messages.into_iter(), answers }) {
            let clerk = Clerk { post: Arc::clone(self), has_left: false };
            tokio::spawn(async move { clerk.serve().await });
        }
        answered
    }

    /// Answers how many more clerks are needed.
    fn hand_in(&self, sack: Sack) -> usize {
        let mut desk = self.desk();
        // An empty one would never be taken, and whoever waits for its answers would wait for ever.
        if sack.messages.len() > 0 {
            desk.waiting += sack.messages.len();
            desk.sacks.push_back(sack);
        }
        let batches = desk.waiting / self.capacity.batch;
        let at_least = usize::from(desk.clerks == 0 && desk.waiting > 0);
        let needed = batches.max(at_least).min(self.clerks.saturating_sub(desk.clerks));
        desk.clerks += needed;
        needed
    }

    /// What goes together next. What nobody waits for any more is left out: it was handed back, and comes again.
    fn take(&self, most: usize) -> Batch {
        let mut desk = self.desk();
        let Desk { sacks, waiting, .. } = &mut *desk;
        let mut batch = Batch::default();
        while batch.outgoing.len() < most
            && let Some(sack) = sacks.front_mut()
        {
            if !sack.answers.is_closed() {
                let fitting = self.fitting(&batch, most, sack.messages.as_slice());
                batch.fill_from(sack, fitting);
                *waiting -= fitting;
                if sack.messages.len() > 0 {
                    break;
                }
            }
            *waiting -= sack.messages.len();
            sacks.pop_front();
        }
        batch
    }

    /// How many of these, from the first on, may go with a batch of up to `most`. One that is too large for any goes alone.
    fn fitting(&self, batch: &Batch, most: usize, messages: &[(usize, Outgoing)]) -> usize {
        let room = (most - batch.outgoing.len()).min(messages.len());
        let Some(most_bytes) = self.capacity.batch_bytes else { return room };
        let mut bytes = batch.outgoing.iter().map(Outgoing::size).sum::<usize>();
        let fits = messages.iter().take(room).enumerate().take_while(|(index, (_, outgoing))| {
            bytes += outgoing.size();
            bytes <= most_bytes || (*index == 0 && batch.outgoing.is_empty())
        });
        fits.count()
    }

    /// Nothing gets through: everybody who waits is told so.
    fn turn_away(&self) {
        let sacks = {
            let mut desk = self.desk();
            desk.waiting = 0;
            std::mem::take(&mut desk.sacks)
        };
        for sack in sacks {
            let down = || PublishError::down(format!("{} is down", self.destination));
            let answers = sack.messages.map(|(place, _)| (place, Err(down()))).collect();
            sack.answers.send(answers).ok();
        }
    }

    async fn publish(&self, batch: &[Outgoing]) -> Vec<Answer> {
        let began = Instant::now();
        let span =
            tracing::debug_span!("postrider.publish", destination = self.destination, messages = batch.len());
        let publishing = AssertUnwindSafe(self.transport.publish(batch)).catch_unwind();
        let published = timeout(self.timeout, publishing).instrument(span).await;
        self.meter.took.record(began.elapsed().as_secs_f64());
        self.meter.batch.record(batch.len() as f64);
        let all_unknown = |why: &str| batch.iter().map(|_| Err(PublishError::unknown(why))).collect();
        let mut answers: Vec<Answer> = match published {
            Ok(Ok(answers)) => answers,
            Ok(Err(_)) => all_unknown("the transport panicked"),
            Err(_) => all_unknown(&format!("no answer within {:?}", self.timeout)),
        };
        if answers.len() != batch.len() {
            let (destination, kind) = (&self.destination, self.transport.kind());
            tracing::error!(
                name: "postrider.bad_transport", destination, kind, messages = batch.len(), answers = answers.len(),
                "the transport must answer once for each message; all of them will be sent again"
            );
            answers = all_unknown("the transport miscounted");
        }
        self.judge(&answers);
        self.meter.count(&answers);
        answers
    }

    /// What the answers say about the destination.
    fn judge(&self, answers: &[Answer]) {
        let is_alive = |answer: &Answer| {
            matches!(answer, Ok(_) | Err(PublishError::Reject { .. } | PublishError::Retry { .. }))
        };
        let down = answers.iter().find_map(|answer| match answer {
            Err(error @ PublishError::Down { .. }) => Some(error),
            _ => None,
        });
        match (down, answers.iter().find_map(|answer| answer.as_ref().err())) {
            (Some(down), _) => self.breaker.went_down(down),
            (None, _) if answers.iter().any(is_alive) => self.breaker.answered(),
            (None, Some(silence)) => self.breaker.was_silent(silence),
            (None, None) => {}
        }
    }

    fn desk(&self) -> MutexGuard<'_, Desk> {
        self.counter.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A clerk goes without an answer only with its runtime.
pub(super) fn unanswered() -> PublishError {
    PublishError::unknown("the runtime ended")
}

/// Sends until nothing waits.
struct Clerk {
    post: Arc<Post>,
    has_left: bool,
}

impl Clerk {
    async fn serve(mut self) {
        loop {
            // Those who are about to hand in something go first: larger batches.
            tokio::task::yield_now().await;
            let post = &self.post;
            let most = post.breaker.admits(post.capacity.batch);
            if most == 0 {
                post.turn_away();
            }
            let Batch { outgoing, waiting } = post.take(self.paced(most).await);
            if outgoing.is_empty() {
                if self.leave() {
                    return;
                }
                continue;
            }
            let mut answers = post.publish(&outgoing).await.into_iter();
            for (waiting, places) in waiting {
                // Whoever does not wait any more has handed it back, and it comes again.
                waiting.send(places.into_iter().zip(&mut answers).collect()).ok();
            }
        }
    }

    /// Leaves, unless something came in at the last moment.
    fn leave(&mut self) -> bool {
        let mut desk = self.post.desk();
        self.has_left = desk.waiting == 0;
        desk.clerks -= usize::from(self.has_left);
        self.has_left
    }

    /// How many may go now. Waits when it is none.
    async fn paced(&self, most: usize) -> usize {
        let Some(pace) = &self.post.pace else { return most };
        let most = most.min(self.post.desk().waiting);
        loop {
            match pace.take(most, Instant::now()) {
                Ok(most) => return most,
                Err(wait) => sleep(wait).await,
            }
        }
    }
}

impl Drop for Clerk {
    /// However it ends: with its runtime, or by itself.
    fn drop(&mut self) {
        if !self.has_left {
            self.post.desk().clerks -= 1;
        }
    }
}

impl Meter {
    fn new(destination: &str) -> Self {
        let count = |result: &'static str| counter!("postrider_published_total", "destination" => destination.to_owned(), "result" => result);
        Self {
            accepted: count("accepted"),
            duplicates: count("duplicate"),
            failed: ["retry", "unknown", "reject", "down"].map(|result| (result, count(result))),
            batch: histogram!("postrider_publish_batch_size", "destination" => destination.to_owned()),
            took: histogram!("postrider_publish_seconds", "destination" => destination.to_owned()),
        }
    }

    fn count(&self, answers: &[Answer]) {
        let (mut accepted, mut duplicates) = (0, 0);
        for answer in answers {
            match answer {
                Ok(receipt) if receipt.is_duplicate => duplicates += 1,
                Ok(_) => accepted += 1,
                Err(error) => self.count_failed(error),
            }
        }
        self.accepted.increment(accepted);
        self.duplicates.increment(duplicates);
    }

    fn count_failed(&self, error: &PublishError) {
        let result = match error {
            PublishError::Retry { .. } => "retry",
            PublishError::Reject { .. } => "reject",
            PublishError::Down { .. } => "down",
            _ => "unknown",
        };
        for (name, counter) in &self.failed {
            if *name == result {
                counter.increment(1);
            }
        }
    }
}

impl fmt::Debug for Post {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Post")
            .field("destination", &self.destination)
            .field("transport", &self.transport)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use postrider_core::{Format, Message, MessageId};
    use postrider_transports::memory::MemoryTransport;
    use std::time::SystemTime;

    fn post(capacity: Capacity) -> Post {
        let second = Duration::from_secs(1);
        let breaker = Arc::new(Breaker::new("billing", second, second, second, Arc::default()));
        Post::new(
            "billing".to_owned(),
            Arc::new(MemoryTransport::new()),
            capacity,
            (second, 1),
            None,
            breaker,
        )
    }

    fn outgoing(payload: usize) -> Outgoing {
        let message = Message::builder("orders").payload(vec![b'x'; payload]).build().unwrap();
        let now = SystemTime::now();
        Outgoing::write(&message, MessageId::at(now), now, "/shop", "orders".to_owned(), Format::Plain)
            .unwrap()
    }

    /// Hands in messages with payloads of these sizes, and answers with who waits for them.
    fn hand_in(post: &Post, payloads: &[usize]) -> mpsc::UnboundedReceiver<Answers> {
        let (answers, answered) = mpsc::unbounded_channel();
        let messages: Vec<_> = payloads.iter().map(|payload| outgoing(*payload)).enumerate().collect();
        post.hand_in(Sack { messages: messages.into_iter(), answers });
        answered
    }

    /// The places of each who waits, batch by batch, until nothing is left.
    fn batches(post: &Post) -> Vec<Vec<Vec<usize>>> {
        let next = || {
            let batch = post.take(post.capacity.batch);
            let count: usize = batch.waiting.iter().map(|(_, places)| places.len()).sum();
            assert_eq!(batch.outgoing.len(), count);
            (count > 0).then(|| batch.waiting.into_iter().map(|(_, places)| places).collect())
        };
        let batches = std::iter::from_fn(next).collect();
        assert_eq!(post.desk().waiting, 0);
        batches
    }

    #[test]
    fn a_batch_is_filled_from_several_and_the_rest_goes_with_the_next() {
        let post = post(Capacity::of(3));
        let _waiting = [hand_in(&post, &[1, 1]), hand_in(&post, &[1, 1, 1, 1]), hand_in(&post, &[])];
        assert_eq!(batches(&post), [vec![vec![0, 1], vec![0]], vec![vec![1, 2, 3]]]);
    }

    /// Nobody is told of an empty batch: it would be taken for an answer that is missing.
    #[test]
    fn what_does_not_fit_waits_for_the_next_batch() {
        let post = post(Capacity::of(10).with_batch_bytes(10_000));
        let _waiting =
            [hand_in(&post, &[6_000]), hand_in(&post, &[6_000, 1_000, 6_000]), hand_in(&post, &[20_000])];
        assert_eq!(batches(&post), [vec![vec![0]], vec![vec![0, 1]], vec![vec![2]], vec![vec![0]]]);
    }

    #[test]
    fn what_nobody_waits_for_is_left_out() {
        let post = post(Capacity::of(10));
        drop(hand_in(&post, &[1, 1]));
        let _waiting = hand_in(&post, &[1]);
        assert_eq!(batches(&post), [vec![vec![0]]]);
    }
}
