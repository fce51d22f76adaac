//! `postrider bench`: measures staging and delivery on this machine and this database.
//!
//! The benchmark stages messages in transactions, one each and many each; then a worker whose handler does nothing delivers all of
//! them; then it stages single messages for an idle worker, and measures the time to their handler. It delivers everything that it
//! stages.

use crate::{
    database::Database, duration, exit::Exit, format, logs, open_database::OpenDatabase, output,
    problem::Problem, stager::Stager, table::Table,
};
use hdrhistogram::Histogram;
use postrider::{Context, Error, Failure, Message, Queue, Worker};
use serde::Serialize;
use std::{
    slice,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    time::Duration,
};
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{Instant, timeout},
};
use tokio_util::sync::CancellationToken;

const QUEUE: &str = "postrider-bench";
/// A database or worker that is slower than this counts as unavailable.
const PATIENCE: Duration = Duration::from_secs(60);

/// The longest latency that the histogram records.
const MOST_MICROS: u64 = PATIENCE.as_micros() as u64;

const EXAMPLES: &str = "Examples:
  postrider bench                                 on a temporary SQLite file
  postrider bench --db postgres://localhost/shop  on a migrated database
  postrider bench --messages 200000 --payload 1000 --json

The benchmark uses the queue postrider-bench, which must be empty, and delivers
everything that it stages.";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// SQLite file, or postgres://user@host:5432/database [default: a temporary file]
    #[arg(long, value_name = "PATH|URL")]
    db: Option<Database>,

    /// Messages to stage in batches and then deliver
    #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    messages: u32,

    /// Messages per transaction when staging in batches
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    batch: u32,

    /// Payload size of a message
    #[arg(long, value_name = "BYTES", default_value_t = 200, value_parser = clap::value_parser!(u32).range(0..=100_000))]
    payload: u32,

    /// Connections that stage concurrently
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..=64))]
    writers: u8,

    /// Handlers that run concurrently
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    concurrency: u16,

    /// Duration of each phase that stages single messages
    #[arg(long = "for", value_name = "DURATION", default_value = "3s", value_parser = duration::parse)]
    duration: Duration,

    /// Print one JSON object to stdout, and nothing else
    #[arg(long)]
    json: bool,
}

/// The measurements as JSON. Its keys are stable.
#[derive(Debug, Serialize)]
struct Report {
    database: String,
    payload_bytes: u32,
    /// One message per transaction.
    staged_singly: Throughput,
    /// Many messages per transaction.
    staged_in_batches: Throughput,
    delivered: Throughput,
    /// From before a single message is staged to its handler, with an idle worker.
    latency_ms: Latency,
}

#[derive(Debug, Clone, Copy, Serialize)]
struct Throughput {
    messages: u64,
    seconds: f64,
    per_second: f64,
}

impl Throughput {
    fn new(messages: u64, elapsed: Duration) -> Self {
        let seconds = elapsed.as_secs_f64();
        Self { messages, seconds, per_second: messages as f64 / seconds.max(f64::MIN_POSITIVE) }
    }
}

#[derive(Debug, Clone, Copy, Serialize)]
struct Latency {
    messages: u64,
    p50: f64,
    p95: f64,
    p99: f64,
}

pub(crate) async fn run(args: Args, stop: CancellationToken) -> Result<Exit, Problem> {
    logs::start(None, "error");
    let (database, folder) = match &args.db {
        Some(database) => (database.clone(), None),
        None => {
            let (database, folder) = Database::temporary("bench.db")?;
            (database, Some(folder))
        }
    };
    let opened = match folder {
        Some(_) => OpenDatabase::open(&database).await?,
        None => OpenDatabase::existing(&database).await?,
    };
    let measurement = async {
        if folder.is_some() {
            opened.backend().migrate().await.map_err(|error| opened.problem(&error))?;
        }
        ensure_empty(&opened).await?;
        measure(&opened, &args, &stop).await.map_err(|error| opened.problem(&error))
    };
    let measured = measurement.await;
    opened.close().await;
    let Some(report) = measured? else { return Ok(Exit::Interrupted) };
    if args.json { output::json(&report) } else { output::text(&to_text(&report)) }?;
    Ok(Exit::Success)
}

/// The worker would deliver the messages of others, too.
async fn ensure_empty(opened: &OpenDatabase) -> Result<(), Problem> {
    let counts = opened.backend().counts().await.map_err(|error| opened.problem(&error))?;
    let left = counts.iter().find(|(name, _)| name.as_str() == QUEUE);
    let left = left.map_or(0, |(_, counts)| {
        counts.pending.at_least + counts.leased.at_least + counts.scheduled.at_least
    });
    if left == 0 {
        return Ok(());
    }
    Err(Problem::new(
        format!("queue {QUEUE} is not empty: an earlier run was interrupted"),
        format!(
            "discard the rest: postrider messages discard --queue {QUEUE} --yes --why 'interrupted benchmark'"
        ),
    ))
}

/// Measures, or returns none when it is stopped; staged messages are delivered in either case.
async fn measure(
    opened: &OpenDatabase,
    args: &Args,
    stop: &CancellationToken,
) -> Result<Option<Report>, Error> {
    let message = Message::builder(QUEUE).payload(vec![b'x'; args.payload as usize]).build()?;
    let arrivals = Arrivals::new();
    let worker = worker(opened, args, &arrivals)?;

    eprintln!("staging one message per transaction for {}", format::span(args.duration));
    let until = Extent::Until(Instant::now() + args.duration);
    let staged_singly = stage(opened, args.writers, vec![message.clone()], until, stop).await?;
    eprintln!("staging {} messages per transaction", args.batch);
    let transactions = Extent::Transactions(args.messages.div_ceil(args.batch));
    let batch = vec![message.clone(); args.batch as usize];
    let staged_in_batches = stage(opened, args.writers, batch, transactions, stop).await?;

    let all = staged_singly.messages + staged_in_batches.messages;
    eprintln!("delivering {all} messages");
    let began_at = Instant::now();
    let running = worker.start();
    let delivered_all = arrivals.reach(all).await;
    let delivered = Throughput::new(all, began_at.elapsed());

    let latency = match delivered_all && !stop.is_cancelled() {
        true => {
            eprintln!("staging single messages for an idle worker for {}", format::span(args.duration));
            single(opened, &message, &arrivals, args.duration, stop).await
        }
        false => Ok(None),
    };
    running.stop(PATIENCE).await;
    let report = latency?.map(|latency_ms| Report {
        database: opened.database().to_string(),
        payload_bytes: args.payload,
        staged_singly,
        staged_in_batches,
        delivered,
        latency_ms,
    });
    Ok(report)
}

fn worker(opened: &OpenDatabase, args: &Args, arrivals: &Arrivals) -> Result<Worker, Error> {
    let arrivals = arrivals.clone();
    let concurrency = usize::from(args.concurrency);
    let queue = Queue::new(QUEUE).concurrency(concurrency).on_any(move |_: Context| {
        let arrivals = arrivals.clone();
        async move {
            arrivals.count_one();
            Ok::<(), Failure>(())
        }
    });
    let builder = Worker::builder_on(opened.backend());
    Ok(builder.concurrency(concurrency).queue(queue).build()?)
}

/// When staging ends.
#[derive(Debug, Clone, Copy)]
enum Extent {
    Until(Instant),
    Transactions(u32),
}

impl Extent {
    fn includes(self, begun: u32) -> bool {
        match self {
            Self::Until(time) => Instant::now() < time,
            Self::Transactions(all) => begun < all,
        }
    }
}

/// Stages the same batch repeatedly, with several connections concurrently.
async fn stage(
    opened: &OpenDatabase,
    writers: u8,
    batch: Vec<Message>,
    extent: Extent,
    stop: &CancellationToken,
) -> Result<Throughput, Error> {
    let (batch, begun) = (Arc::new(batch), Arc::new(AtomicU32::new(0)));
    let mut stagers = Vec::new();
    for _ in 0..writers {
        stagers.push(Stager::connect(opened.database()).await?);
    }
    let began_at = Instant::now();
    let mut writing = JoinSet::new();
    for mut stager in stagers {
        let (batch, begun, stop) = (Arc::clone(&batch), Arc::clone(&begun), stop.clone());
        writing.spawn(async move {
            let mut staged = 0;
            while !stop.is_cancelled() && extent.includes(begun.fetch_add(1, Relaxed)) {
                stager.stage(&batch).await?;
                staged += batch.len() as u64;
            }
            stager.close().await;
            Ok::<_, Error>(staged)
        });
    }
    let staged = writing.join_all().await.into_iter().sum::<Result<u64, _>>()?;
    Ok(Throughput::new(staged, began_at.elapsed()))
}

/// Stages single messages for an idle worker, and measures their latency. None when it is stopped.
async fn single(
    opened: &OpenDatabase,
    message: &Message,
    arrivals: &Arrivals,
    duration: Duration,
    stop: &CancellationToken,
) -> Result<Option<Latency>, Error> {
    let mut stager = Stager::connect(opened.database()).await?;
    let mut micros =
        Histogram::<u64>::new_with_max(MOST_MICROS, 3).map_err(|error| Error::Other(Box::new(error)))?;
    let until = Instant::now() + duration;
    while Instant::now() < until {
        let began_at = Instant::now();
        let expected = arrivals.count() + 1;
        stager.stage(slice::from_ref(message)).await?;
        if !arrivals.reach(expected).await || stop.is_cancelled() {
            return Ok(None);
        }
        micros.saturating_record(u64::try_from(began_at.elapsed().as_micros()).unwrap_or(u64::MAX));
    }
    stager.close().await;
    let millis = |percentile| micros.value_at_percentile(percentile) as f64 / 1000.0;
    let (p50, p95, p99) = (millis(50.0), millis(95.0), millis(99.0));
    Ok(Some(Latency { messages: micros.len(), p50, p95, p99 }))
}

/// Counts the messages that were handled.
#[derive(Debug, Clone)]
struct Arrivals(watch::Sender<u64>);

impl Arrivals {
    fn new() -> Self {
        Self(watch::Sender::new(0))
    }

    fn count_one(&self) {
        self.0.send_modify(|count| *count += 1);
    }

    fn count(&self) -> u64 {
        *self.0.borrow()
    }

    /// Waits until this many messages were handled; returns false when none arrives for too long.
    async fn reach(&self, count: u64) -> bool {
        let mut arrivals = self.0.subscribe();
        while *arrivals.borrow_and_update() < count {
            if !matches!(timeout(PATIENCE, arrivals.changed()).await, Ok(Ok(()))) {
                return false;
            }
        }
        true
    }
}

fn to_text(report: &Report) -> String {
    let mut table = Table::new(["PHASE", "MESSAGES", "SECONDS", "PER SECOND"]);
    let mut push = |phase: &str, throughput: Throughput| {
        let Throughput { messages, seconds, per_second } = throughput;
        table.push([
            phase.to_owned(),
            messages.to_string(),
            format!("{seconds:.2}"),
            format!("{per_second:.0}"),
        ]);
    };
    push("staged, one per transaction", report.staged_singly);
    push("staged, in batches", report.staged_in_batches);
    push("delivered, from claim to settlement", report.delivered);
    let Latency { messages, p50, p95, p99 } = report.latency_ms;
    format!(
        "{}, payload {} bytes\n\n{table}\n\
         latency from staging to the handler of an idle worker, {messages} messages: \
         p50 {p50:.2} ms, p95 {p95:.2} ms, p99 {p99:.2} ms",
        report.database, report.payload_bytes
    )
}
