//! The batcher of one destination: it publishes submitted messages in batches.
//!
//! Deliveries submit their messages, alone or many at once, and wait for the publish results. Send tasks publish: one starts as
//! soon as there is a message, another one whenever a full batch waits, up to the destination's concurrency. Messages that are
//! submitted while they publish go with the next batch, so batches grow with the load and no message waits for a batch to fill.
//! A send task is a task of its own: a delivery that is dropped while its message is in flight does not affect the others.

use super::{address_health::AddressHealth, circuit_breaker::CircuitBreaker};
use crate::delivery_loop::rate_limiter::RateLimiter;
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

pub(super) type PublishResult = Result<Receipt, PublishError>;
/// Publish results of one batch, by the indexes of their messages.
pub(super) type PublishResults = Vec<(usize, PublishResult)>;

pub(super) struct Batcher {
    pub(super) destination: String,
    pub(super) transport: Arc<dyn Transport>,
    pub(super) capacity: Capacity,
    pub(super) timeout: Duration,
    pub(super) max_send_tasks: usize,
    pub(super) rate_limiter: Option<RateLimiter>,
    pub(super) breaker: Arc<CircuitBreaker>,
    addresses: AddressHealth,
    queue: Mutex<SendQueue>,
    metrics: PublishMetrics,
}

/// Messages that wait to be sent, and the number of send tasks.
#[derive(Default)]
struct SendQueue {
    submissions: VecDeque<Submission>,
    /// Messages in all submissions.
    waiting: usize,
    send_tasks: usize,
}

/// Messages that were submitted together, each with its index.
struct Submission {
    messages: vec::IntoIter<(usize, Outgoing)>,
    results: mpsc::UnboundedSender<PublishResults>,
}

/// Messages of one publish call.
#[derive(Default)]
struct Batch {
    outgoing: Vec<Outgoing>,
    /// The receivers of the results, in the order of the messages, with the indexes of theirs.
    receivers: Vec<(mpsc::UnboundedSender<PublishResults>, Vec<usize>)>,
}

impl Batch {
    fn fill_from(&mut self, submission: &mut Submission, count: usize) {
        // An empty list of results would look like the end.
        if count > 0 {
            let (indexes, outgoing): (Vec<_>, Vec<_>) = submission.messages.by_ref().take(count).unzip();
            self.outgoing.extend(outgoing);
            self.receivers.push((submission.results.clone(), indexes));
        }
    }
}

struct PublishMetrics {
    accepted: Counter,
    duplicates: Counter,
    failed: [(&'static str, Counter); 4],
    batch: Histogram,
    publish_seconds: Histogram,
}

impl Batcher {
    pub(super) fn new(
        destination: String,
        transport: Arc<dyn Transport>,
        capacity: Capacity,
        (timeout, max_send_tasks): (Duration, usize),
        rate_limiter: Option<RateLimiter>,
        breaker: Arc<CircuitBreaker>,
    ) -> Self {
        let metrics = PublishMetrics::new(&destination);
        Self {
            destination,
            transport,
            capacity,
            timeout,
            max_send_tasks,
            rate_limiter,
            breaker,
            addresses: AddressHealth::default(),
            queue: Mutex::default(),
            metrics,
        }
    }

    /// Publishes a message and waits for its result.
    pub(super) async fn send(self: &Arc<Self>, outgoing: Outgoing) -> PublishResult {
        let results = self.send_all(vec![(0, outgoing)]).recv().await;
        results.and_then(|mut results| results.pop()).map_or_else(|| Err(no_result()), |(_, result)| result)
    }

    /// Publishes messages. Results arrive batch by batch, each with the given index; messages without a result when the
    /// channel ends have [`no_result`].
    pub(super) fn send_all(
        self: &Arc<Self>,
        messages: Vec<(usize, Outgoing)>,
    ) -> mpsc::UnboundedReceiver<PublishResults> {
        let (results, receiver) = mpsc::unbounded_channel();
        for _ in 0..self.submit(Submission { messages: messages.into_iter(), results }) {
            let send_task = SendTask { batcher: Arc::clone(self), is_stopped: false };
            tokio::spawn(async move { send_task.run().await });
        }
        receiver
    }

    /// Returns how many more send tasks are needed.
    fn submit(&self, submission: Submission) -> usize {
        let mut queue = self.lock();
        // An empty submission would never be taken, and its sender would wait forever.
        if submission.messages.len() > 0 {
            queue.waiting += submission.messages.len();
            queue.submissions.push_back(submission);
        }
        let batches = queue.waiting / self.capacity.batch;
        let min = usize::from(queue.send_tasks == 0 && queue.waiting > 0);
        let needed = batches.max(min).min(self.max_send_tasks.saturating_sub(queue.send_tasks));
        queue.send_tasks += needed;
        needed
    }

    /// Takes the next batch. Messages whose delivery was dropped are left out: they were released and are redelivered.
    fn next_batch(&self, max: usize) -> Batch {
        let mut queue = self.lock();
        let SendQueue { submissions, waiting, .. } = &mut *queue;
        let mut batch = Batch::default();
        while batch.outgoing.len() < max
            && let Some(submission) = submissions.front_mut()
        {
            if !submission.results.is_closed() {
                let fitting_count = self.fitting_count(&batch, max, submission.messages.as_slice());
                batch.fill_from(submission, fitting_count);
                *waiting -= fitting_count;
                if submission.messages.len() > 0 {
                    break;
                }
            }
            *waiting -= submission.messages.len();
            submissions.pop_front();
        }
        batch
    }

    /// The number of these messages, from the first on, that fit into a batch of up to `max`. One that is too large for any batch
    /// is sent alone.
    fn fitting_count(&self, batch: &Batch, max: usize, messages: &[(usize, Outgoing)]) -> usize {
        let free = (max - batch.outgoing.len()).min(messages.len());
        let Some(max_bytes) = self.capacity.batch_bytes else { return free };
        let mut bytes = batch.outgoing.iter().map(Outgoing::size).sum::<usize>();
        let fits = messages.iter().take(free).enumerate().take_while(|(index, (_, outgoing))| {
            bytes += outgoing.size();
            bytes <= max_bytes || (*index == 0 && batch.outgoing.is_empty())
        });
        fits.count()
    }

    /// The destination is unavailable: fails everything that waits.
    fn fail_all(&self) {
        let submissions = {
            let mut queue = self.lock();
            queue.waiting = 0;
            std::mem::take(&mut queue.submissions)
        };
        for submission in submissions {
            let unavailable =
                || PublishError::unavailable(format!("destination {} is unavailable", self.destination));
            let results = submission.messages.map(|(index, _)| (index, Err(unavailable()))).collect();
            submission.results.send(results).ok();
        }
    }

    async fn publish(&self, batch: &[Outgoing]) -> Vec<PublishResult> {
        let (began, is_probe) = (Instant::now(), self.breaker.is_open());
        let span =
            tracing::debug_span!("postrider.publish", destination = self.destination, messages = batch.len());
        let publishing = AssertUnwindSafe(self.transport.publish(batch)).catch_unwind();
        let published = timeout(self.timeout, publishing).instrument(span).await;
        self.metrics.publish_seconds.record(began.elapsed().as_secs_f64());
        self.metrics.batch.record(batch.len() as f64);
        let all_unknown = |why: &str| batch.iter().map(|_| Err(PublishError::unknown(why))).collect();
        let mut results: Vec<PublishResult> = match published {
            Ok(Ok(results)) => results,
            Ok(Err(_)) => all_unknown("the transport panicked"),
            Err(_) => all_unknown(&format!("no publish result within {:?}", self.timeout)),
        };
        if results.len() != batch.len() {
            let (destination, kind) = (&self.destination, self.transport.kind());
            tracing::error!(
                name: "postrider.bad_transport", destination, kind, messages = batch.len(), results = results.len(),
                "transport {kind} of destination {destination:?} returned {} results for {} messages; all of them are sent again",
                results.len(), batch.len()
            );
            results = all_unknown("the transport returned the wrong number of results");
        }
        self.addresses.resolve(batch, &mut results, is_probe);
        self.update_breaker(&results);
        self.metrics.count(&results);
        results
    }

    /// Updates the circuit breaker from the publish results.
    fn update_breaker(&self, results: &[PublishResult]) {
        let is_alive = |result: &PublishResult| {
            matches!(result, Ok(_) | Err(PublishError::Reject { .. } | PublishError::Retry { .. }))
        };
        let unavailable = results.iter().find_map(|result| match result {
            Err(error @ (PublishError::Unavailable { .. } | PublishError::AddressUnavailable { .. })) => {
                Some(error)
            }
            _ => None,
        });
        match (unavailable, results.iter().find_map(|result| result.as_ref().err())) {
            (Some(unavailable), _) => self.breaker.open(unavailable),
            (None, _) if results.iter().any(is_alive) => self.breaker.record_result(),
            (None, Some(unknown)) => self.breaker.record_unknown(unknown),
            (None, None) => {}
        }
    }

    fn lock(&self) -> MutexGuard<'_, SendQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A send task ends without results only when its runtime shuts down.
pub(super) fn no_result() -> PublishError {
    PublishError::unknown("the runtime ended")
}

/// Publishes until nothing waits.
struct SendTask {
    batcher: Arc<Batcher>,
    is_stopped: bool,
}

impl SendTask {
    async fn run(mut self) {
        loop {
            // Tasks that are about to submit run first: larger batches.
            tokio::task::yield_now().await;
            let batcher = &self.batcher;
            let max = batcher.breaker.permits(batcher.capacity.batch);
            if max == 0 {
                batcher.fail_all();
            }
            let Batch { outgoing, receivers } = batcher.next_batch(self.apply_rate_limit(max).await);
            if outgoing.is_empty() {
                if self.try_stop() {
                    return;
                }
                continue;
            }
            let mut results = batcher.publish(&outgoing).await.into_iter();
            for (receiver, indexes) in receivers {
                // A delivery that was dropped has released its message, which is redelivered.
                receiver.send(indexes.into_iter().zip(&mut results).collect()).ok();
            }
        }
    }

    /// Stops, unless a message was submitted at the last moment.
    fn try_stop(&mut self) -> bool {
        let mut queue = self.batcher.lock();
        self.is_stopped = queue.waiting == 0;
        queue.send_tasks -= usize::from(self.is_stopped);
        self.is_stopped
    }

    /// The number of messages that the rate limit permits now. Waits while it permits none.
    async fn apply_rate_limit(&self, max: usize) -> usize {
        let Some(rate_limiter) = &self.batcher.rate_limiter else { return max };
        let max = max.min(self.batcher.lock().waiting);
        loop {
            match rate_limiter.acquire(max, Instant::now()) {
                Ok(max) => return max,
                Err(wait) => sleep(wait).await,
            }
        }
    }
}

impl Drop for SendTask {
    /// Also when it ends with its runtime.
    fn drop(&mut self) {
        if !self.is_stopped {
            self.batcher.lock().send_tasks -= 1;
        }
    }
}

impl PublishMetrics {
    fn new(destination: &str) -> Self {
        let count = |result: &'static str| counter!("postrider_published_total", "destination" => destination.to_owned(), "result" => result);
        Self {
            accepted: count("accepted"),
            duplicates: count("duplicate"),
            failed: ["retry", "unknown", "reject", "unavailable"].map(|result| (result, count(result))),
            batch: histogram!("postrider_publish_batch_size", "destination" => destination.to_owned()),
            publish_seconds: histogram!("postrider_publish_seconds", "destination" => destination.to_owned()),
        }
    }

    fn count(&self, results: &[PublishResult]) {
        let (mut accepted, mut duplicates) = (0, 0);
        for result in results {
            match result {
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
            PublishError::Unavailable { .. } | PublishError::AddressUnavailable { .. } => "unavailable",
            _ => "unknown",
        };
        for (name, counter) in &self.failed {
            if *name == result {
                counter.increment(1);
            }
        }
    }
}

impl fmt::Debug for Batcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batcher")
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

    fn batcher(capacity: Capacity) -> Batcher {
        let second = Duration::from_secs(1);
        let breaker = Arc::new(CircuitBreaker::new("billing", second, second, second, Arc::default()));
        Batcher::new(
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

    /// Submits messages with payloads of these sizes and returns the receiver of their results.
    fn submit(batcher: &Batcher, payloads: &[usize]) -> mpsc::UnboundedReceiver<PublishResults> {
        let (results, receiver) = mpsc::unbounded_channel();
        let messages: Vec<_> = payloads.iter().map(|payload| outgoing(*payload)).enumerate().collect();
        batcher.submit(Submission { messages: messages.into_iter(), results });
        receiver
    }

    /// The indexes of each receiver, batch by batch, until nothing is left.
    fn batches(batcher: &Batcher) -> Vec<Vec<Vec<usize>>> {
        let next = || {
            let batch = batcher.next_batch(batcher.capacity.batch);
            let count: usize = batch.receivers.iter().map(|(_, indexes)| indexes.len()).sum();
            assert_eq!(batch.outgoing.len(), count);
            (count > 0).then(|| batch.receivers.into_iter().map(|(_, indexes)| indexes).collect())
        };
        let batches = std::iter::from_fn(next).collect();
        assert_eq!(batcher.lock().waiting, 0);
        batches
    }

    #[test]
    fn batch_takes_from_several_submissions_and_leaves_the_rest_for_the_next() {
        let batcher = batcher(Capacity::of(3));
        let _receivers = [submit(&batcher, &[1, 1]), submit(&batcher, &[1, 1, 1, 1]), submit(&batcher, &[])];
        assert_eq!(batches(&batcher), [vec![vec![0, 1], vec![0]], vec![vec![1, 2, 3]]]);
    }

    /// No receiver gets an empty batch: it would look like a missing result.
    #[test]
    fn message_beyond_the_byte_limit_waits_for_the_next_batch() {
        let batcher = batcher(Capacity::of(10).with_batch_bytes(10_000));
        let _receivers = [
            submit(&batcher, &[6_000]),
            submit(&batcher, &[6_000, 1_000, 6_000]),
            submit(&batcher, &[20_000]),
        ];
        assert_eq!(batches(&batcher), [vec![vec![0]], vec![vec![0, 1]], vec![vec![2]], vec![vec![0]]]);
    }

    #[test]
    fn submission_of_a_dropped_delivery_is_left_out() {
        let batcher = batcher(Capacity::of(10));
        drop(submit(&batcher, &[1, 1]));
        let _receivers = submit(&batcher, &[1]);
        assert_eq!(batches(&batcher), [vec![vec![0]]]);
    }
}
