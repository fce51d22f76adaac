//! `bench flat`: steady traffic while an open snapshot keeps every dead row from being removed.
//!
//! A claim that scans dead rows gets slower every second. Ours must not: there is no backlog, and at the end the worker is not
//! busier than at the beginning.

use crate::{
    backend::Backend,
    figure::Figure,
    postgres::{Databases, Ours},
    worker::{BenchDatabase, best},
};
use anyhow::{Result, ensure};
use async_trait::async_trait;
use postrider_core::{
    ClaimRequest, ClaimedMessage, Error, Lease, LeaseSettlement, Message, Outbox as _, PauseRecord,
    PruneReport, PruneRequest, ScheduleName, Store, timetable::ScheduleReading,
};
use postrider_engine::{Context, Failure, Queue, Running, Worker};
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

    /// Run for this many seconds; the first quarter is the beginning, the last the end
    #[arg(long, default_value_t = 120, value_parser = clap::value_parser!(u64).range(8..))]
    seconds: u64,

    /// Stage this many messages per second
    #[arg(long, default_value_t = 5_000, value_parser = clap::value_parser!(u64).range(100..))]
    rate: u64,
}

/// The interval of the producers' commits.
const TICK: Duration = Duration::from_millis(10);

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
    let queue = Queue::new(bench_db.queue.as_str()).on_any(async |_: Context| Ok::<(), Failure>(()));
    let running = best(Worker::builder_on(timed), queue).build()?.start();

    let window = Duration::from_secs(args.seconds / 4);
    let produced = Arc::new(AtomicU64::new(0));
    let producer = tokio::spawn(produce(
        bench_db.app.clone(),
        bench_db.store.outbox(),
        args.rate,
        Duration::from_secs(args.seconds),
        Arc::clone(&produced),
    ));
    let first = share(&busy, window).await;
    eprintln!("flat: busy {:.1} % in the beginning", first * 100.0);
    let mut backlogs = Vec::new();
    for quarter in 1..3 {
        sleep(window).await;
        backlogs.push(backlog(&produced, &running));
        eprintln!("flat: quarter {quarter}: {} messages behind", backlogs[quarter - 1]);
    }
    let last = share(&busy, window.saturating_sub(Duration::from_millis(200))).await;
    backlogs.push(backlog(&produced, &running));
    eprintln!("flat: busy {:.1} % in the end, {:?} messages behind", last * 100.0, backlogs);
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
    let most = backlogs.into_iter().max().unwrap_or(0);
    figure("busy", "% of the time", last * 100.0, first * 100.0, "% in the first quarter", "≤ 1.5")
        .print(args.json)?;
    figure("backlog", "messages", most as f64, args.rate as f64, "messages staged in a second", "≤ 1")
        .print(args.json)
}

fn backlog(produced: &AtomicU64, running: &Running) -> u64 {
    produced.load(Relaxed).saturating_sub(running.report().delivered)
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
            outbox.stage_all(&mut tx, &crate::side::batch(count)?).await?;
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
