//! `postrider bench`: how fast messages are staged and carried here, on this machine and this database.
//!
//! It stages messages in transactions, one each and many each; then a worker whose handler does nothing carries all of them; then
//! single messages are staged for a worker that waits, and the time to their handler is taken. What it stages, it carries.

use crate::{
    answer, database::Database, duration, exit::Exit, logs, opened::Opened, problem::Problem, stager::Stager,
    table::Table, words,
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
/// Who is this slow does not answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// The longest time that is told apart.
const MOST_MICROS: u64 = PATIENCE.as_micros() as u64;

const EXAMPLES: &str = "Examples:
  postrider bench                                        on SQLite, in a temporary file
  postrider bench --db postgres://localhost/shop         on your own database; its tables must be there
  postrider bench --messages 200000 --payload 1000 --json

Everything it stages goes to the queue postrider-bench, which must be empty, and is carried before it ends.";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// A file for SQLite, or postgres://user@host:5432/database; a temporary file unless given
    #[arg(long, value_name = "PATH|URL")]
    db: Option<Database>,

    /// How many messages are staged in transactions of many, and then carried
    #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    messages: u32,

    /// How many messages a transaction stages where it stages many
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    batch: u32,

    /// How many bytes a message has
    #[arg(long, value_name = "BYTES", default_value_t = 200, value_parser = clap::value_parser!(u32).range(0..=100_000))]
    payload: u32,

    /// How many connections stage at once
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..=64))]
    writers: u8,

    /// How many handlers run at once
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    concurrency: u16,

    /// How long single messages are staged one by one
    #[arg(long = "for", value_name = "DURATION", default_value = "3s", value_parser = duration::parse)]
    lasts: Duration,

    /// Print one object of JSON, and nothing else, on stdout
    #[arg(long)]
    json: bool,
}

/// What was measured, for programs. Its keys are a promise.
#[derive(Debug, Serialize)]
struct Report {
    database: String,
    payload_bytes: u32,
    /// One message a transaction.
    staged_singly: Pace,
    /// Many messages a transaction.
    staged_in_batches: Pace,
    carried: Pace,
    /// From before a single message is staged to its handler, while the worker waits.
    latency_ms: Latency,
}

#[derive(Debug, Clone, Copy, Serialize)]
struct Pace {
    messages: u64,
    seconds: f64,
    per_second: f64,
}

impl Pace {
    fn new(messages: u64, took: Duration) -> Self {
        let seconds = took.as_secs_f64();
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
        Some(_) => Opened::open(&database).await?,
        None => Opened::existing(&database).await?,
    };
    let measured = async {
        if folder.is_some() {
            opened.schema().migrate().await.map_err(|error| opened.problem(&error))?;
        }
        is_empty(&opened).await?;
        measure(&opened, &args, &stop).await.map_err(|error| opened.problem(&error))
    };
    let measured = measured.await;
    opened.close().await;
    let Some(report) = measured? else { return Ok(Exit::Interrupted) };
    if args.json { answer::json(&report) } else { answer::text(&told(&report)) }?;
    Ok(Exit::Well)
}

/// Somebody else's messages would be carried, too.
async fn is_empty(opened: &Opened) -> Result<(), Problem> {
    let counts = opened.inspect().counts().await.map_err(|error| opened.problem(&error))?;
    let left = counts.iter().find(|(name, _)| name.as_str() == QUEUE);
    let left = left
        .map_or(0, |(_, counts)| counts.pending.at_least + counts.leased.at_least + counts.waiting.at_least);
    if left == 0 {
        return Ok(());
    }
    Err(Problem::new(
        format!("the queue {QUEUE} is not empty: an earlier run was broken off"),
        format!(
            "remove what is left: postrider messages discard --queue {QUEUE} --yes --why 'a broken off bench'"
        ),
    ))
}

/// Measures, or answers with nothing when it is stopped; then what was staged is carried nevertheless.
async fn measure(opened: &Opened, args: &Args, stop: &CancellationToken) -> Result<Option<Report>, Error> {
    let letter = Message::builder(QUEUE).payload(vec![b'x'; args.payload as usize]).build()?;
    let arrivals = Arrivals::new();
    let worker = worker(opened, args, &arrivals)?;

    eprintln!("staging one a transaction, for {}", words::span(args.lasts));
    let until = Extent::Until(Instant::now() + args.lasts);
    let staged_singly = stage(opened, args.writers, vec![letter.clone()], until, stop).await?;
    eprintln!("staging {} a transaction", args.batch);
    let transactions = Extent::Transactions(args.messages.div_ceil(args.batch));
    let batch = vec![letter.clone(); args.batch as usize];
    let staged_in_batches = stage(opened, args.writers, batch, transactions, stop).await?;

    let all = staged_singly.messages + staged_in_batches.messages;
    eprintln!("carrying {all}");
    let began_at = Instant::now();
    let running = worker.start();
    let carried_all = arrivals.reach(all).await;
    let carried = Pace::new(all, began_at.elapsed());

    let latency = match carried_all && !stop.is_cancelled() {
        true => {
            eprintln!("staging one by one, for {}", words::span(args.lasts));
            single(opened, &letter, &arrivals, args.lasts, stop).await
        }
        false => Ok(None),
    };
    running.shutdown(PATIENCE).await;
    let report = latency?.map(|latency_ms| Report {
        database: opened.database().to_string(),
        payload_bytes: args.payload,
        staged_singly,
        staged_in_batches,
        carried,
        latency_ms,
    });
    Ok(report)
}

fn worker(opened: &Opened, args: &Args, arrivals: &Arrivals) -> Result<Worker, Error> {
    let arrivals = arrivals.clone();
    let concurrency = usize::from(args.concurrency);
    let queue = Queue::new(QUEUE).concurrency(concurrency).on_any(move |_: Context| {
        let arrivals = arrivals.clone();
        async move {
            arrivals.came();
            Ok::<(), Failure>(())
        }
    });
    let builder = Worker::builder_on(opened.store(), Some(opened.wake()));
    Ok(builder.concurrency(concurrency).queue(queue).build()?)
}

/// How long staging goes on.
#[derive(Debug, Clone, Copy)]
enum Extent {
    Until(Instant),
    Transactions(u32),
}

impl Extent {
    fn has(self, begun: u32) -> bool {
        match self {
            Self::Until(time) => Instant::now() < time,
            Self::Transactions(all) => begun < all,
        }
    }
}

/// Stages the same batch again and again, with several connections at once.
async fn stage(
    opened: &Opened,
    writers: u8,
    batch: Vec<Message>,
    extent: Extent,
    stop: &CancellationToken,
) -> Result<Pace, Error> {
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
            while !stop.is_cancelled() && extent.has(begun.fetch_add(1, Relaxed)) {
                stager.stage(&batch).await?;
                staged += batch.len() as u64;
            }
            stager.close().await;
            Ok::<_, Error>(staged)
        });
    }
    let staged = writing.join_all().await.into_iter().sum::<Result<u64, _>>()?;
    Ok(Pace::new(staged, began_at.elapsed()))
}

/// Stages single messages for a worker that waits for them. Nothing when it is stopped.
async fn single(
    opened: &Opened,
    letter: &Message,
    arrivals: &Arrivals,
    lasts: Duration,
    stop: &CancellationToken,
) -> Result<Option<Latency>, Error> {
    let mut stager = Stager::connect(opened.database()).await?;
    let mut micros =
        Histogram::<u64>::new_with_max(MOST_MICROS, 3).map_err(|error| Error::Other(Box::new(error)))?;
    let until = Instant::now() + lasts;
    while Instant::now() < until {
        let began_at = Instant::now();
        let expected = arrivals.count() + 1;
        stager.stage(slice::from_ref(letter)).await?;
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

    fn came(&self) {
        self.0.send_modify(|count| *count += 1);
    }

    fn count(&self) -> u64 {
        *self.0.borrow()
    }

    /// Waits until so many have come; no longer, when none comes any more.
    async fn reach(&self, count: u64) -> bool {
        let mut come = self.0.subscribe();
        while *come.borrow_and_update() < count {
            if !matches!(timeout(PATIENCE, come.changed()).await, Ok(Ok(()))) {
                return false;
            }
        }
        true
    }
}

fn told(report: &Report) -> String {
    let mut table = Table::new(["WHAT", "MESSAGES", "SECONDS", "A SECOND"]);
    let mut push = |what: &str, pace: Pace| {
        let Pace { messages, seconds, per_second } = pace;
        table.push([
            what.to_owned(),
            messages.to_string(),
            format!("{seconds:.2}"),
            format!("{per_second:.0}"),
        ]);
    };
    push("staged, one a transaction", report.staged_singly);
    push("staged, many a transaction", report.staged_in_batches);
    push("carried, from claim to settlement", report.carried);
    let Latency { messages, p50, p95, p99 } = report.latency_ms;
    format!(
        "{}, messages of {} bytes\n\n{table}\n\
         from staging to the handler of a worker that waits, {messages} messages: \
         p50 {p50:.2} ms, p95 {p95:.2} ms, p99 {p99:.2} ms",
        report.database, report.payload_bytes
    )
}
