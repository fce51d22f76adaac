//! `bench flat`: steady traffic while an open snapshot keeps every dead row from being removed.
//!
//! A statement that scans dead rows gets slower every second, and one whose plan follows the statistics is slow from one run of
//! autovacuum to the next. Ours must be neither: there is no backlog, and the worker is not much busier in any window than in the
//! beginning. One message in twenty fails once, and one in twenty is a timer.

use crate::{
    backend::Backend,
    figure::{Figure, quantile},
    postgres::{Databases, Ours},
    worker::{BenchDatabase, best},
};
use anyhow::{Result, ensure};
use async_trait::async_trait;
use postrider_core::{
    ClaimRequest, ClaimedMessage, Error, Lease, LeaseSettlement, Message, Outbox as _, PauseRecord,
    PruneReport, PruneRequest, RetryStrategy, ScheduleName, Store, timetable::ScheduleReading,
};
use postrider_engine::{Context, Failure, Queue, Worker};
use postrider_stores::postgres::PostgresStore;
use sqlx::Executor as _;
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant, SystemTime},
};
use tokio::time::{MissedTickBehavior, interval, sleep};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Print one JSON object per figure
    #[arg(long)]
    json: bool,

    /// Run for this many seconds, in windows of five; autovacuum visits a table after about sixty
    #[arg(long, default_value_t = 120, value_parser = clap::value_parser!(u64).range(20..))]
    seconds: u64,

    /// Stage this many messages per second
    #[arg(long, default_value_t = 5_000, value_parser = clap::value_parser!(u64).range(100..))]
    rate: u64,
}

/// The interval of the producers' commits.
const TICK: Duration = Duration::from_millis(10);
/// Autovacuum holds up a statement for less than this, and a changed plan for longer.
const WINDOW: Duration = Duration::from_secs(5);
/// One message in this many is a timer, and one fails once.
const SPECIAL: u64 = 20;
const TIMER: Duration = Duration::from_secs(1);
const RETRY: Duration = Duration::from_millis(500);

pub(crate) async fn run(args: &Args) -> Result<()> {
    let mut databases = Databases::connect().await?;
    let url = databases.database(&Ours).await?;
    let bench_db = BenchDatabase::open(&url).await?;
    let done = measure(args, &bench_db).await;
    bench_db.store.close().await;
    bench_db.app.close().await;
    Box::new(databases).remove().await?;
    done
}

async fn measure(args: &Args, bench_db: &BenchDatabase) -> Result<()> {
    let mut holder = bench_db.app.acquire().await?;
    holder.execute("begin isolation level repeatable read; select count(*) from postrider.ready").await?;

    let busy = Arc::new(AtomicU64::new(0));
    let timed = Arc::new(TimedStore { store: bench_db.store.clone(), busy: Arc::clone(&busy) });
    let handle = async |context: Context| {
        let fails_once = context.id().as_uuid().as_u128().is_multiple_of(SPECIAL.into());
        if fails_once && context.attempt() == 1 { Err(Failure::retry("temporary failure")) } else { Ok(()) }
    };
    let retry = RetryStrategy::constant(RETRY).with_max_attempts(10);
    let queue = Queue::new(bench_db.queue.as_str()).on_any(handle).retry(retry);
    let running = best(Worker::builder_on(timed), queue).build()?.start();

    let produced = Arc::new(AtomicU64::new(0));
    let producer = tokio::spawn(produce(
        bench_db.app.clone(),
        bench_db.store.outbox(),
        args.rate,
        Duration::from_secs(args.seconds),
        Arc::clone(&produced),
    ));
    let windows = args.seconds / WINDOW.as_secs();
    let (mut shares, mut backlogs) = (Vec::new(), Vec::new());
    for window in 1..=windows {
        shares.push(share(&busy, WINDOW).await * 100.0);
        backlogs.push(produced.load(Relaxed).saturating_sub(running.report().delivered));
        let (share, behind) = (shares[shares.len() - 1], backlogs[backlogs.len() - 1]);
        eprintln!("flat: window {window} of {windows}: busy {share:.1} %, {behind} messages in the tables");
    }
    producer.await??;
    let wanted = args.rate * args.seconds;
    while running.report().delivered < produced.load(Relaxed) {
        sleep(Duration::from_millis(5)).await;
    }
    running.stop(Duration::from_secs(10)).await;
    holder.execute("commit").await?;
    let produced = produced.load(Relaxed);
    ensure!(
        produced * 10 >= wanted * 9,
        "only {produced} of {wanted} messages were staged: the machine is too slow"
    );

    let figure = |scenario: &str, unit, ours, reference, reference_name, goal| Figure {
        bench: "flat",
        scenario: scenario.to_owned(),
        unit,
        ours,
        reference,
        reference_name,
        goal,
    };
    // The first window connects and prepares.
    let (beginning, rest) = shares[1..].split_at(shares.len() / 4);
    let beginning = quantile(beginning, 0.5);
    let most = rest.iter().copied().fold(0.0, f64::max);
    figure("busy", "% of the time", most, beginning, "% in the first quarter (median)", "≤ 2")
        .print(args.json)?;
    let most = backlogs.into_iter().max().unwrap_or(0);
    figure("backlog", "messages", most as f64, args.rate as f64, "messages staged in a second", "≤ 1")
        .print(args.json)
}

/// The share of time that the worker spends in non-empty claims and in settlements.
async fn share(busy: &AtomicU64, window: Duration) -> f64 {
    let (before, began) = (busy.load(Relaxed), Instant::now());
    sleep(window).await;
    (busy.load(Relaxed) - before) as f64 / began.elapsed().as_nanos() as f64
}

async fn produce(
    app: sqlx::PgPool,
    outbox: postrider_stores::postgres::PostgresOutbox,
    rate: u64,
    lasting: Duration,
    produced: Arc<AtomicU64>,
) -> Result<()> {
    let began = Instant::now();
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while began.elapsed() < lasting {
        ticks.tick().await;
        let due = (began.elapsed().as_secs_f64() * rate as f64) as u64;
        let count = usize::try_from(due.saturating_sub(produced.load(Relaxed)))?;
        if count > 0 {
            let mut tx = app.begin().await?;
            let mut messages = crate::side::batch(count)?;
            let number = produced.load(Relaxed);
            for (message, number) in messages.iter_mut().zip(number..) {
                if number.is_multiple_of(SPECIAL) {
                    *message = message.to_builder().due_after(TIMER).build()?;
                }
            }
            outbox.stage_all(&mut tx, &messages).await?;
            tx.commit().await?;
            produced.fetch_add(count as u64, Relaxed);
        }
    }
    Ok(())
}

/// A store wrapper that measures the time of its calls.
#[derive(Debug)]
struct TimedStore {
    store: PostgresStore,
    /// Nanoseconds.
    busy: Arc<AtomicU64>,
}

impl TimedStore {
    fn add(&self, since: Instant) {
        self.busy.fetch_add(u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX), Relaxed);
    }
}

#[async_trait]
impl Store for TimedStore {
    async fn claim(&self, request: &ClaimRequest) -> Result<Vec<ClaimedMessage>, Error> {
        let began = Instant::now();
        let claimed = self.store.claim(request).await?;
        if !claimed.is_empty() {
            self.add(began);
        }
        Ok(claimed)
    }

    async fn renew(&self, leases: &[Lease], lease_for: Duration) -> Result<Vec<Lease>, Error> {
        self.store.renew(leases, lease_for).await
    }

    async fn settle(&self, settlements: &[LeaseSettlement]) -> Result<Vec<Lease>, Error> {
        let began = Instant::now();
        let lost = self.store.settle(settlements).await?;
        self.add(began);
        Ok(lost)
    }

    async fn count_isolated(&self, lease: &Lease) -> Result<bool, Error> {
        self.store.count_isolated(lease).await
    }

    async fn prune(&self, request: &PruneRequest) -> Result<PruneReport, Error> {
        self.store.prune(request).await
    }

    async fn paused(&self) -> Result<Vec<PauseRecord>, Error> {
        self.store.paused().await
    }

    async fn read_schedule(&self, schedule: &ScheduleName) -> Result<ScheduleReading, Error> {
        Store::read_schedule(&self.store, schedule).await
    }

    async fn tick(
        &self,
        schedule: &ScheduleName,
        at: SystemTime,
        messages: &[Message],
    ) -> Result<bool, Error> {
        Store::tick(&self.store, schedule, at, messages).await
    }

    async fn ping(&self) -> Result<(), Error> {
        self.store.ping().await
    }
}

postrider_core::forward_backend!(TimedStore, store: notifier, inspect, operate, schema);
