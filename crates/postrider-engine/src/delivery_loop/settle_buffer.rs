//! The settle buffer: finished deliveries wait here and are settled in batches.
//!
//! The buffer is flushed when it holds a full batch, when its oldest entry has waited long enough, when nothing else is in
//! flight, and when the loop stops. Entries that arrive during a flush go with the next one: under load batches grow by
//! themselves. Only a flush that takes long, because another transaction holds one of its rows, does not hold up the next: of each
//! claim one flush runs at a time, so that the messages of a turn are settled in their order.
//!
//! A large part of one claim is settled in a call of its own, next to the others: for a store that is cheaper than a mix.
//!
//! A flush that fails is retried while the leases last. When the store rejects a batch permanently, or one of its rows is locked,
//! its entries are settled one by one, so that one entry cannot hold up the others.

use super::{
    Delivery,
    backoff::Backoff,
    idle_detector::IdleDetector,
    leases::{LeaseRegistry, log_losses},
    metrics::Phase,
    store_outage::StoreOutage,
    subscription::MAX_CLAIM,
    wakeup::Wakeup,
};
use futures_util::{StreamExt, stream::FuturesUnordered};
use metrics::{Histogram, histogram};
use postrider_core::{Error, LeaseSettlement, LeaseToken, MessageId, QueueName, Settlement, Store};
use std::{
    collections::{BTreeMap, HashMap, HashSet},
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::Ordering::SeqCst},
    time::Duration,
};
use tokio::{
    sync::Notify,
    time::{Instant, sleep, sleep_until},
};

/// The batch size of settlements, and the maximum wait of the first entry for others.
#[derive(Debug, Clone, Copy)]
pub(super) struct FlushPolicy {
    pub(super) size: usize,
    pub(super) age: Duration,
}

impl Default for FlushPolicy {
    fn default() -> Self {
        Self { size: MAX_CLAIM / 2, age: Duration::from_millis(5) }
    }
}

#[derive(Debug)]
pub(super) struct SettleBuffer {
    state: Mutex<State>,
    /// Notified when there may be a batch to flush.
    ready: Notify,
    /// Notified after each flush.
    flushed: Notify,
    flush_policy: FlushPolicy,
}

#[derive(Debug, Default)]
struct State {
    entries: Vec<PendingSettlement>,
    since: Option<Instant>,
    is_urgent: bool,
    is_closed: bool,
}

/// A delivery and its settlement.
#[derive(Debug)]
pub(super) struct PendingSettlement {
    pub(super) delivery: Arc<Delivery>,
    pub(super) settlement: Settlement,
    /// Its run time; `None` when its delivery never started.
    pub(super) ran_for: Option<Duration>,
}

impl SettleBuffer {
    pub(super) fn new(flush_policy: FlushPolicy) -> Self {
        Self { state: Mutex::default(), ready: Notify::new(), flushed: Notify::new(), flush_policy }
    }

    /// Adds finished deliveries. `is_urgent` when nothing else is in flight that would bring more.
    pub(super) fn push(&self, entries: impl IntoIterator<Item = PendingSettlement>, is_urgent: bool) {
        let mut state = self.lock();
        let before = state.entries.len();
        state
            .entries
            .extend(entries.into_iter().inspect(|entry| entry.delivery.is_buffered.store(true, SeqCst)));
        let mut is_ready = is_urgent && !state.is_urgent && !state.entries.is_empty();
        state.is_urgent |= is_urgent;
        if before == 0 && !state.entries.is_empty() {
            state.since = Some(Instant::now());
            is_ready = true;
        }
        let size = self.flush_policy.size;
        is_ready |= before < size && state.entries.len() >= size;
        drop(state);
        if is_ready {
            self.ready.notify_one();
        }
    }

    /// Flushes without waiting for more entries: nothing else is in flight.
    pub(super) fn flush_soon(&self) {
        self.push([], true);
    }

    /// Waits until a buffered delivery has been settled.
    pub(super) async fn wait_until_settled(&self, delivery: &Delivery) {
        loop {
            let mut flushed = std::pin::pin!(self.flushed.notified());
            flushed.as_mut().enable();
            if delivery.ended.load(SeqCst) {
                return;
            }
            self.flush_soon();
            flushed.await;
        }
    }

    /// Whether the backlog of settlements is so large that claims must wait.
    pub(super) fn is_full(&self) -> bool {
        self.lock().entries.len() >= self.flush_policy.size * 8
    }

    /// No more entries follow.
    pub(super) fn close(&self) {
        self.lock().is_closed = true;
        self.ready.notify_one();
    }

    /// The next batch, as soon as it is due; `None` when the buffer is closed and empty.
    async fn next_batch(&self) -> Option<Vec<PendingSettlement>> {
        loop {
            let wait_until = {
                let mut state = self.lock();
                let now = Instant::now();
                let due_at = state.since.map(|since| since + self.flush_policy.age);
                let is_due = state.is_urgent || state.is_closed || due_at.is_some_and(|at| at <= now);
                if !state.entries.is_empty() && (is_due || state.entries.len() >= self.flush_policy.size) {
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
                None => self.ready.notified().await,
                Some(at) => tokio::select! {
                    () = self.ready.notified() => {}
                    () = sleep_until(at) => {}
                },
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Flushes the buffer until it is closed.
pub(super) struct Settler {
    pub(super) store: Arc<dyn Store>,
    pub(super) settle_buffer: Arc<SettleBuffer>,
    pub(super) leases: Arc<LeaseRegistry>,
    pub(super) store_outage: Arc<StoreOutage>,
    /// By queue: scheduled for retries, so that the claimer polls when one comes due.
    pub(super) wakeups: HashMap<QueueName, Arc<Wakeup>>,
    pub(super) idle_detector: Option<Arc<IdleDetector>>,
}

impl Settler {
    pub(super) async fn run(self) {
        let sizes: Histogram = histogram!("postrider_settle_batch_size");
        let mut flushes = FuturesUnordered::new();
        // The claims that are being flushed, and entries of them that arrived since.
        let (mut flushing, mut waiting) = (HashSet::<u64>::new(), Vec::new());
        let (mut started_at, mut is_open) = (Instant::now(), true);
        loop {
            let not_before = (!flushes.is_empty()).then(|| started_at + SLOW_FLUSH);
            let next_batch = async {
                if let Some(at) = not_before {
                    sleep_until(at).await;
                }
                self.settle_buffer.next_batch().await
            };
            let entries = tokio::select! {
                biased;
                Some(claims) = flushes.next() => {
                    for claim in &claims {
                        flushing.remove(claim);
                    }
                    self.settle_buffer.flushed.notify_waiters();
                    mem::take(&mut waiting)
                }
                entries = next_batch, if is_open && flushes.len() < MAX_FLUSHES => match entries {
                    Some(entries) => {
                        sizes.record(entries.len() as f64);
                        started_at = Instant::now();
                        entries
                    }
                    None => {
                        is_open = false;
                        Vec::new()
                    }
                },
                else => return,
            };
            let (later, now): (Vec<PendingSettlement>, Vec<_>) =
                entries.into_iter().partition(|entry| flushing.contains(&entry.delivery.batch));
            waiting.extend(later);
            for part in group_by_claim(now) {
                let claims: HashSet<u64> = part.iter().map(|entry| entry.delivery.batch).collect();
                flushing.extend(&claims);
                flushes.push(async {
                    self.flush(part).await;
                    claims
                });
            }
        }
    }

    async fn flush(&self, entries: Vec<PendingSettlement>) {
        let mut backoff = Backoff::new(Duration::from_millis(20), Duration::from_secs(2));
        // Leases that the store reported as lost were counted then.
        let mut entries: Vec<_> = entries.into_iter().filter(|entry| !is_ended(entry)).collect();
        while !entries.is_empty() {
            match self.settle(&entries).await {
                Ok(()) => {
                    self.after_flush(&entries);
                    return;
                }
                Err(error) => {
                    self.store_outage.report("settle messages", &error);
                    if error.is_contention() || !matches!(error, Error::Unavailable(_)) {
                        entries = self.settle_individually(entries).await;
                    }
                }
            }
            entries = self.drop_expired(entries);
            if !entries.is_empty() {
                sleep(backoff.next_delay()).await;
            }
        }
    }

    fn after_flush(&self, entries: &[PendingSettlement]) {
        for entry in entries {
            if let Settlement::Retry { after, .. } | Settlement::Snooze { after } = &entry.settlement
                && let Some(wakeup) = self.wakeups.get(entry.delivery.claimed.lease.queue())
            {
                wakeup.schedule(*after);
            }
        }
        self.note_change();
    }

    /// The store has changed. Also called before a message leaves the in-flight set: a claimer that sees nothing in flight
    /// must know that the store has changed.
    fn note_change(&self) {
        if let Some(idle_detector) = &self.idle_detector {
            idle_detector.note_change();
        }
    }

    /// Settles each entry in its own call and returns those that still failed. Behind a failure nothing of the same turn is settled:
    /// its messages would be delivered out of order.
    async fn settle_individually(&self, entries: Vec<PendingSettlement>) -> Vec<PendingSettlement> {
        let (mut failed, mut failed_keys) = (Vec::new(), HashSet::new());
        for entry in entries {
            let lease = &entry.delivery.claimed.lease;
            let key = lease.turn().map(|turn| (lease.queue().clone(), turn.key.clone()));
            if key.as_ref().is_some_and(|key| failed_keys.contains(key)) {
                failed.push(entry);
                continue;
            }
            let entry = [entry];
            match self.settle(&entry).await {
                Ok(()) => self.after_flush(&entry),
                Err(_) => {
                    failed_keys.extend(key);
                    failed.extend(entry);
                }
            }
        }
        failed
    }

    /// Drops entries whose lease may have expired: their messages are redelivered.
    fn drop_expired(&self, entries: Vec<PendingSettlement>) -> Vec<PendingSettlement> {
        let now = Instant::now();
        let is_leased = |entry: &PendingSettlement| {
            self.leases.expires_at(&entry.delivery).is_some_and(|until| now < until)
        };
        let (kept, expired): (Vec<_>, Vec<_>) = entries.into_iter().partition(is_leased);
        let firsts = self.leases.end(expired.iter().map(|entry| &entry.delivery));
        report_lost(expired.iter().zip(firsts).filter_map(|(entry, is_first)| is_first.then_some(entry)));
        kept
    }

    async fn settle(&self, entries: &[PendingSettlement]) -> Result<(), Error> {
        let settlements: Vec<LeaseSettlement> = entries
            .iter()
            .map(|entry| entry.delivery.claimed.lease.settle(entry.settlement.clone()))
            .collect();
        let lost = self.store.settle(&settlements).await?;
        self.store_outage.resolved();
        self.note_change();
        let lost: HashSet<(MessageId, LeaseToken)> =
            lost.iter().map(|lease| (lease.id(), lease.token())).collect();
        let firsts = self.leases.end(entries.iter().map(|entry| &entry.delivery));
        let mut lost_entries = Vec::new();
        for (entry, _) in entries.iter().zip(firsts).filter(|(_, is_first)| *is_first) {
            let lease = &entry.delivery.claimed.lease;
            let metrics = &entry.delivery.subscription.metrics;
            match entry.ran_for {
                _ if !lost.is_empty() && lost.contains(&(lease.id(), lease.token())) => {
                    lost_entries.push(entry);
                }
                Some(ran_for) => {
                    metrics.record_settled(&entry.settlement, ran_for, entry.delivery.age());
                }
                None => metrics.record_unstarted(),
            }
        }
        report_lost(lost_entries);
        Ok(())
    }
}

/// A flush that takes longer does not hold up the next one.
const SLOW_FLUSH: Duration = Duration::from_millis(200);
/// The most flushes at once: each may occupy a connection of the store.
const MAX_FLUSHES: usize = 4;

/// From this many messages on, the settlements of one claim go in a call of their own.
const OWN_CALL_FROM: usize = 100;

/// Stores settle the messages of one claim at lower cost, so large claims are not mixed with others. A turn is part of one
/// claim and keeps its order.
fn group_by_claim(entries: Vec<PendingSettlement>) -> Vec<Vec<PendingSettlement>> {
    let mut claims: BTreeMap<u64, Vec<PendingSettlement>> = BTreeMap::new();
    for entry in entries {
        claims.entry(entry.delivery.batch).or_default().push(entry);
    }
    let (mut parts, few): (Vec<_>, Vec<_>) =
        claims.into_values().partition(|claim| claim.len() >= OWN_CALL_FROM);
    if !few.is_empty() {
        parts.push(few.into_iter().flatten().collect());
    }
    parts
}

fn is_ended(entry: &PendingSettlement) -> bool {
    entry.delivery.ended.load(SeqCst)
}

fn report_lost<'e>(entries: impl IntoIterator<Item = &'e PendingSettlement>) {
    let deliveries: Vec<_> = entries.into_iter().map(|entry| Arc::clone(&entry.delivery)).collect();
    for delivery in &deliveries {
        delivery.lose();
        delivery.subscription.metrics.record_lost(Phase::Settle);
    }
    log_losses(&deliveries, "settle");
}
