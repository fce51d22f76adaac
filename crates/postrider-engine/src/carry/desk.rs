//! Where finished deliveries are settled, together.
//!
//! The desk is cleared when it holds a full batch, when its oldest entry has waited long enough, when nothing else is in
//! hand, and when the carrier stops; one flush at a time, so that the messages of a turn are settled in their order. What
//! comes in during a flush goes with the next one: under load batches grow by themselves.
//!
//! Much of one claim is settled by itself, beside the others: for a store that is cheaper than a mix.
//!
//! A flush that fails is tried again while the leases last. Where the store refuses a batch for a reason that will not
//! go away, its entries are tried one by one, so that one of them cannot hold up the others.

use super::{
    Delivery,
    alarm::Alarm,
    leases::{Leases, tell_losses},
    meter::Phase,
    running::Draining,
    subscription::LARGEST_CLAIM,
    trouble::{Backoff, Trouble},
};
use futures_util::future::join_all;
use metrics::{Histogram, histogram};
use postrider_core::{Error, LeaseToken, MessageId, QueueName, Settle, Settlement, Store};
use std::{
    collections::{BTreeMap, HashMap, HashSet},
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::Ordering::SeqCst},
    time::{Duration, SystemTime},
};
use tokio::{
    sync::Notify,
    time::{Instant, sleep, sleep_until},
};

/// How much is settled at once, and how long the first entry may wait for the others.
#[derive(Debug, Clone, Copy)]
pub(super) struct Flushing {
    pub(super) size: usize,
    pub(super) age: Duration,
}

impl Default for Flushing {
    fn default() -> Self {
        Self { size: LARGEST_CLAIM / 2, age: Duration::from_millis(5) }
    }
}

#[derive(Debug)]
pub(super) struct Desk {
    state: Mutex<State>,
    /// Rung when there may be something to do.
    bell: Notify,
    /// Rung after each flush.
    cleared: Notify,
    flushing: Flushing,
}

#[derive(Debug, Default)]
struct State {
    entries: Vec<Entry>,
    since: Option<Instant>,
    is_urgent: bool,
    is_closed: bool,
}

/// A delivery and how it ended.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) delivery: Arc<Delivery>,
    pub(super) settlement: Settlement,
    /// How long it ran; `None` when nobody began with it.
    pub(super) ran_for: Option<Duration>,
}

impl Desk {
    pub(super) fn new(flushing: Flushing) -> Self {
        Self { state: Mutex::default(), bell: Notify::new(), cleared: Notify::new(), flushing }
    }

    /// Takes what ended together. `is_urgent` when nothing else is going on that would bring more.
    pub(super) fn put(&self, entries: impl IntoIterator<Item = Entry>, is_urgent: bool) {
        let mut state = self.lock();
        let before = state.entries.len();
        state.entries.extend(entries.into_iter().inspect(|entry| entry.delivery.on_desk.store(true, SeqCst)));
        let mut ring = is_urgent && !state.is_urgent && !state.entries.is_empty();
        state.is_urgent |= is_urgent;
        if before == 0 && !state.entries.is_empty() {
            state.since = Some(Instant::now());
            ring = true;
        }
        let size = self.flushing.size;
        ring |= before < size && state.entries.len() >= size;
        drop(state);
        if ring {
            self.bell.notify_one();
        }
    }

    /// Nothing else is in hand: what is here need not wait.
    pub(super) fn hurry(&self) {
        self.put([], true);
    }

    /// Waits until a delivery that was put here has ended.
    pub(super) async fn ended(&self, delivery: &Delivery) {
        loop {
            let mut cleared = std::pin::pin!(self.cleared.notified());
            cleared.as_mut().enable();
            if delivery.ended.load(SeqCst) {
                return;
            }
            self.hurry();
            cleared.await;
        }
    }

    /// Whether so much waits that nothing more should be claimed.
    pub(super) fn is_full(&self) -> bool {
        self.lock().entries.len() >= self.flushing.size * 8
    }

    /// Nothing comes any more.
    pub(super) fn close(&self) {
        self.lock().is_closed = true;
        self.bell.notify_one();
    }

    /// The next batch, when it is time; `None` when the desk is closed and clear.
    async fn batch(&self) -> Option<Vec<Entry>> {
        loop {
            let wait_until = {
                let mut state = self.lock();
                let now = Instant::now();
                let due_at = state.since.map(|since| since + self.flushing.age);
                let is_time = state.is_urgent || state.is_closed || due_at.is_some_and(|at| at <= now);
                if !state.entries.is_empty() && (is_time || state.entries.len() >= self.flushing.size) {
                    state.since = None;
                    state.is_urgent = false;
                    return Some(mem::take(&mut state.entries));
                }
                if state.is_closed {
                    return None;
                }
                due_at.filter(|_| !state.entries.is_empty())
            };
            match wait_until {
                None => self.bell.notified().await,
                Some(at) => tokio::select! {
                    () = self.bell.notified() => {}
                    () = sleep_until(at) => {}
                },
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Clears the desk until it is closed.
pub(super) struct Settler {
    pub(super) store: Arc<dyn Store>,
    pub(super) desk: Arc<Desk>,
    pub(super) leases: Arc<Leases>,
    pub(super) trouble: Arc<Trouble>,
    /// By queue: set for retries, so that fetchers look again in time.
    pub(super) alarms: HashMap<QueueName, Arc<Alarm>>,
    pub(super) draining: Option<Arc<Draining>>,
}

impl Settler {
    pub(super) async fn run(self) {
        let sizes: Histogram = histogram!("postrider_settle_batch_size");
        while let Some(entries) = self.desk.batch().await {
            sizes.record(entries.len() as f64);
            join_all(by_claim(entries).into_iter().map(|together| self.flush(together))).await;
            self.desk.cleared.notify_waiters();
        }
    }

    async fn flush(&self, entries: Vec<Entry>) {
        let mut backoff = Backoff::new(Duration::from_millis(20), Duration::from_secs(2));
        // What the store has answered as lost was counted then.
        let mut entries: Vec<_> = entries.into_iter().filter(|entry| !is_ended(entry)).collect();
        while !entries.is_empty() {
            match self.settle(&entries).await {
                Ok(()) => {
                    self.flushed(&entries);
                    return;
                }
                Err(Error::Unavailable(error)) => {
                    self.trouble.happened("settling", &Error::Unavailable(error));
                }
                Err(error) => {
                    self.trouble.happened("settling", &error);
                    entries = self.one_by_one(entries).await;
                }
            }
            entries = self.still_leased(entries);
            if !entries.is_empty() {
                sleep(backoff.pause()).await;
            }
        }
    }

    fn flushed(&self, entries: &[Entry]) {
        for entry in entries {
            if let Settlement::Retry { after, .. } | Settlement::Snooze { after } = &entry.settlement
                && let Some(alarm) = self.alarms.get(entry.delivery.claimed.lease.queue())
            {
                alarm.set(*after);
            }
        }
        self.stir();
    }

    /// Something changed in the store. Said before anything leaves our hands, too: whoever finds the hands empty must know that
    /// there is something to look for.
    fn stir(&self) {
        if let Some(draining) = &self.draining {
            draining.stir();
        }
    }

    /// Settles each for itself, and answers with those that still failed.
    async fn one_by_one(&self, entries: Vec<Entry>) -> Vec<Entry> {
        let mut failed = Vec::new();
        for entry in entries {
            let entry = [entry];
            match self.settle(&entry).await {
                Ok(()) => self.flushed(&entry),
                Err(_) => failed.extend(entry),
            }
        }
        failed
    }

    /// Gives up what may have lapsed: it comes again.
    fn still_leased(&self, entries: Vec<Entry>) -> Vec<Entry> {
        let now = Instant::now();
        let is_leased = |entry: &Entry| self.leases.until(&entry.delivery).is_some_and(|until| now < until);
        let (kept, given_up): (Vec<_>, Vec<_>) = entries.into_iter().partition(is_leased);
        let firsts = self.leases.end(given_up.iter().map(|entry| &entry.delivery));
        lose(given_up.iter().zip(firsts).filter_map(|(entry, is_first)| is_first.then_some(entry)));
        kept
    }

    async fn settle(&self, entries: &[Entry]) -> Result<(), Error> {
        let settles: Vec<Settle> = entries
            .iter()
            .map(|entry| entry.delivery.claimed.lease.settle(entry.settlement.clone()))
            .collect();
        let lost = self.store.settle(&settles).await?;
        self.trouble.is_over();
        self.stir();
        let lost: HashSet<(MessageId, LeaseToken)> =
            lost.iter().map(|lease| (lease.id(), lease.token())).collect();
        let firsts = self.leases.end(entries.iter().map(|entry| &entry.delivery));
        let mut gone = Vec::new();
        let now = SystemTime::now();
        for (entry, _) in entries.iter().zip(firsts).filter(|(_, is_first)| *is_first) {
            let lease = &entry.delivery.claimed.lease;
            let meter = &entry.delivery.subscription.meter;
            match entry.ran_for {
                _ if !lost.is_empty() && lost.contains(&(lease.id(), lease.token())) => gone.push(entry),
                Some(ran_for) => {
                    meter.settled(&entry.settlement, ran_for, entry.delivery.age(now));
                }
                None => meter.handed_back(),
            }
        }
        lose(gone);
        Ok(())
    }
}

/// So many messages of one claim are settled by themselves.
const WORTH_A_CALL: usize = 100;

/// Stores settle what was claimed together for less, so large claims are not mixed with others. A turn is part of one claim, and keeps
/// its order.
fn by_claim(entries: Vec<Entry>) -> Vec<Vec<Entry>> {
    let mut claims: BTreeMap<u64, Vec<Entry>> = BTreeMap::new();
    for entry in entries {
        claims.entry(entry.delivery.batch).or_default().push(entry);
    }
    let (mut parts, few): (Vec<_>, Vec<_>) =
        claims.into_values().partition(|claim| claim.len() >= WORTH_A_CALL);
    if !few.is_empty() {
        parts.push(few.into_iter().flatten().collect());
    }
    parts
}

fn is_ended(entry: &Entry) -> bool {
    entry.delivery.ended.load(SeqCst)
}

fn lose<'e>(entries: impl IntoIterator<Item = &'e Entry>) {
    let deliveries: Vec<_> = entries.into_iter().map(|entry| Arc::clone(&entry.delivery)).collect();
    for delivery in &deliveries {
        delivery.lose();
        delivery.subscription.meter.lost(Phase::Settle);
    }
    tell_losses(&deliveries, "settle");
}
