//! A carrier at work, and how it stops.

use super::{
    Carrier, Subscription, Tally,
    alarm::Alarm,
    desk::Desk,
    hall::Hall,
    leases::Leases,
    run::{interrupted, untouched},
    signal::Signals,
};
use postrider_core::{Error, QueueName, Store};
use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};
use tokio::{
    task::JoinSet,
    time::{Instant, timeout, timeout_at},
};
use tokio_util::sync::CancellationToken;

/// A carrier at work. Dropped, it ends at once: leases lapse, and nothing is lost.
pub struct Running {
    parts: Parts,
}

pub(super) struct Parts {
    pub(super) store: Arc<dyn Store>,
    pub(super) subscriptions: Vec<Arc<Subscription>>,
    /// What was counted before it was started: the meters belong to the subscriptions, which outlive it.
    pub(super) before: Vec<Tally>,
    pub(super) hall: Arc<Hall>,
    pub(super) desk: Arc<Desk>,
    pub(super) leases: Arc<Leases>,
    pub(super) fetchers: JoinSet<()>,
    pub(super) runners: JoinSet<()>,
    /// The listener and the keeper of leases.
    pub(super) keepers: JoinSet<()>,
    pub(super) settler: JoinSet<()>,
    pub(super) started: Started,
    /// No more claims.
    pub(super) stop: CancellationToken,
    /// No more renewals.
    pub(super) over: CancellationToken,
}

/// How many loops there were in the beginning.
#[derive(Debug, Clone, Copy)]
pub(super) struct Started {
    pub(super) fetchers: usize,
    pub(super) runners: usize,
    pub(super) keepers: usize,
}

/// How a carrier stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stopped {
    /// Whether everything in hand ended, and was settled, in time.
    pub is_clean: bool,
    /// What became of the messages since it was started.
    pub tally: Tally,
}

/// How a carrier is.
#[derive(Debug)]
pub struct Health {
    /// Loops that have ended though they should not: the process should be restarted.
    pub dead_loops: Vec<&'static str>,
    /// Whether the store answers.
    pub store: Result<(), Error>,
    /// Whether it was told to stop.
    pub is_stopping: bool,
}

impl Health {
    /// Whether the process does what it can: if not, restart it. A store that is away is no reason to.
    pub fn is_alive(&self) -> bool {
        self.dead_loops.is_empty()
    }

    /// Whether messages are being carried.
    pub fn is_ready(&self) -> bool {
        self.is_alive() && self.store.is_ok() && !self.is_stopping
    }
}

impl Running {
    pub(super) fn new(parts: Parts) -> Self {
        Self { parts }
    }

    /// What became of the messages so far.
    pub fn tally(&self) -> Tally {
        tally(&self.parts.subscriptions, &self.parts.before)
    }

    /// The same by queue.
    pub fn tallies(&self) -> BTreeMap<QueueName, Tally> {
        let subscriptions = self.parts.subscriptions.iter().zip(&self.parts.before);
        let tally = |(subscription, before): (&Arc<Subscription>, &Tally)| {
            (subscription.queue.clone(), subscription.tally() - *before)
        };
        subscriptions.map(tally).collect()
    }

    /// Asks the store and every loop how they are, and waits for the answer at most so long.
    pub async fn ping(&mut self, within: Duration) -> Health {
        let parts = &mut self.parts;
        let is_stopping = parts.stop.is_cancelled();
        let mut dead_loops = Vec::new();
        let mut note = |is_dead: bool, name| dead_loops.extend((is_dead && !is_stopping).then_some(name));
        for (name, tasks, started) in [
            ("fetcher", &mut parts.fetchers, parts.started.fetchers),
            ("runner", &mut parts.runners, parts.started.runners),
            ("keeper", &mut parts.keepers, parts.started.keepers),
            ("settler", &mut parts.settler, 1),
        ] {
            while tasks.try_join_next().is_some() {}
            note(tasks.len() < started, name);
        }
        let store = match timeout(within, parts.store.ping()).await {
            Ok(answer) => answer,
            Err(late) => Err(Error::Unavailable(Box::new(late))),
        };
        Health { dead_loops, store, is_stopping }
    }

    /// Stops: claims nothing more, lets what runs finish and settles it, releases what nobody has begun. Takes at most
    /// `deadline`; the last fifth of it, up to two seconds, is kept for the last settlements.
    pub async fn shutdown(self, deadline: Duration) -> Stopped {
        let Parts {
            subscriptions,
            before,
            hall,
            desk,
            leases,
            mut fetchers,
            mut runners,
            mut keepers,
            mut settler,
            stop,
            over,
            ..
        } = self.parts;
        let end_at = Instant::now() + deadline;
        let run_until = end_at - (deadline / 5).min(Duration::from_secs(2));
        stop.cancel();
        let mut is_clean = join_all(&mut fetchers, run_until).await;
        desk.put(hall.close().iter().flat_map(super::delivery::Unit::deliveries).map(untouched), true);
        if !join_all(&mut runners, run_until).await {
            is_clean = false;
            let open = leases.open();
            let left = open.iter().filter(|delivery| !delivery.on_desk.load(SeqCst)).count();
            metrics::counter!("postrider_drain_timeout_total").increment(1);
            tracing::warn!(name: "postrider.drain_timeout", left, ?deadline, "time is up: what still runs is cancelled and released");
            open.iter().for_each(|delivery| delivery.lose());
            // Awaited, so that nothing runs any more when it is released.
            runners.shutdown().await;
            let open = leases.open();
            desk.put(
                open.iter().filter(|delivery| !delivery.on_desk.load(SeqCst)).filter_map(interrupted),
                true,
            );
        }
        desk.close();
        is_clean &= join_all(&mut settler, end_at).await;
        over.cancel();
        settler.shutdown().await;
        keepers.shutdown().await;
        Stopped { is_clean, tally: tally(&subscriptions, &before) }
    }

    /// Ends at once, as if the process had died: leases lapse, and nothing is lost.
    pub async fn abort(mut self) -> Stopped {
        self.parts.stop.cancel();
        let parts = &mut self.parts;
        for tasks in [&mut parts.fetchers, &mut parts.runners, &mut parts.keepers, &mut parts.settler] {
            tasks.shutdown().await;
        }
        Stopped { is_clean: false, tally: self.tally() }
    }
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running").field("tally", &self.tally()).finish_non_exhaustive()
    }
}

fn tally(subscriptions: &[Arc<Subscription>], before: &[Tally]) -> Tally {
    let since = subscriptions.iter().zip(before).map(|(subscription, before)| subscription.tally() - *before);
    since.fold(Tally::default(), |sum, one| sum + one)
}

async fn join_all(tasks: &mut JoinSet<()>, until: Instant) -> bool {
    timeout_at(until, async { while tasks.join_next().await.is_some() {} }).await.is_ok()
}

impl Carrier {
    /// Carries what is due now, and what comes due while it does, and stops when nothing is and nothing is in hand. Retries that
    /// wait for their time are left waiting.
    ///
    /// # Errors
    /// When the store fails. What was in hand was settled or released.
    pub async fn run_until_idle(&self) -> Result<Tally, Error> {
        let (running, draining) = self.start_draining();
        draining.ended().await;
        let stopped = running.shutdown(Duration::from_secs(30)).await;
        match draining.error() {
            Some(error) => Err(error),
            None => Ok(stopped.tally),
        }
    }

    /// Starts, and stops on the first SIGINT or SIGTERM within `deadline`. On the second it ends at once: leases lapse, and
    /// nothing is lost.
    ///
    /// # Errors
    /// When signals cannot be listened for.
    pub async fn run_until_signal(&self, deadline: Duration) -> std::io::Result<Stopped> {
        let mut signals = Signals::new()?;
        let running = self.start();
        signals.next().await;
        tracing::info!(name: "postrider.stopping", ?deadline, "stopping");
        tokio::select! {
            stopped = running.shutdown(deadline) => Ok(stopped),
            () = signals.next() => Ok(Stopped { is_clean: false, tally: Tally::default() }),
        }
    }
}

/// Finds out when there is nothing left to do.
///
/// Whatever changes the picture (a message was claimed, a batch was settled) counts up a number. Nothing is left when every
/// fetcher has found nothing in a look that began at the present number, and nothing is in hand. What leaves our hands counts up
/// the number before it does.
#[derive(Debug)]
pub(super) struct Draining {
    alarms: Vec<Arc<Alarm>>,
    changes: AtomicU64,
    /// By fetcher: the number at which its last look began that found nothing.
    empty_at: Mutex<Vec<Option<u64>>>,
    error: Mutex<Option<Error>>,
    over: CancellationToken,
}

impl Draining {
    pub(super) fn new(alarms: Vec<Arc<Alarm>>) -> Self {
        let empty_at = Mutex::new(vec![None; alarms.len()]);
        Self {
            alarms,
            changes: AtomicU64::new(0),
            empty_at,
            error: Mutex::default(),
            over: CancellationToken::new(),
        }
    }

    pub(super) fn alarms(&self) -> &[Arc<Alarm>] {
        &self.alarms
    }

    pub(super) fn seen(&self) -> u64 {
        self.changes.load(SeqCst)
    }

    /// Something changed: everybody looks again.
    pub(super) fn stir(&self) {
        self.changes.fetch_add(1, SeqCst);
        self.alarms.iter().for_each(|alarm| alarm.ring());
    }

    pub(super) fn found_nothing(&self, line: usize, seen: u64, in_hand: usize) {
        let mut empty_at = self.empty_at.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(slot) = empty_at.get_mut(line) {
            *slot = Some(seen);
        }
        let now = self.seen();
        if in_hand == 0 && empty_at.iter().all(|empty| *empty == Some(now)) {
            self.over.cancel();
        }
    }

    pub(super) fn fail(&self, error: Error) {
        self.error.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        self.over.cancel();
    }

    async fn ended(&self) {
        if self.alarms.is_empty() {
            return;
        }
        self.over.cancelled().await;
    }

    fn error(&self) -> Option<Error> {
        self.error.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}
