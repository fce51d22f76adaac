//! `postrider dev`: a demo shop that shows the outbox at work.
//!
//! Producers place orders in transactions of their own tables, each with its event; some transactions are rolled back. A worker
//! handles the events: most in a transaction that writes a row, some slowly, some as timers, some only at the second attempt, some
//! never. At the end an audit compares the tables with the store: every committed order must be done, dead or waiting, and none
//! handled twice.

mod audit;
mod handlers;
mod order;
mod postgres;
mod producer;
mod reasons;
mod screen;
mod shop;
mod snapshot;
mod sqlite;
mod stats;
mod summary;
mod view;

use crate::{
    database::Database,
    duration,
    exit::Exit,
    logs::{self, Notes},
    output,
    problem::Problem,
};
use audit::audit;
use order::QUEUES;
use postgres::PostgresShop;
use postrider::{Error, sqlite::Durability};
use producer::{PRODUCERS, Producer, Schedule};
use reasons::Reasons;
use screen::{REFRESH_INTERVAL, Screen};
use shop::Shop;
use snapshot::Sampler;
use sqlite::SqliteShop;
use stats::Stats;
use std::{path::PathBuf, sync::Arc, time::Duration};
use summary::Summary;
use tempfile::TempDir;
use tokio::{
    task::JoinSet,
    time::{Instant, MissedTickBehavior, interval, sleep_until},
};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// How long messages in flight may take to finish.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);

/// Failing handlers are part of the demo, and counted; they are not logged one by one. Connection errors are logged by the code that
/// used the connection.
const DEFAULT_LOG: &str = "warn,postrider_engine=error,sqlx_core=error";

const EXAMPLES: &str = "Examples:
  postrider dev                                 until Ctrl-C, temporary file
  postrider dev --for 10s --json                one JSON object at the end
  postrider dev --rate 2000 --db-file shop.db   faster, and keep the data
  postrider dev --db postgres://localhost/shop  on PostgreSQL

The exit code is 0 when every committed order is accounted for exactly once, 1
when an order was lost or duplicated or the demo failed, and 2 when the
arguments are wrong. POSTRIDER_LOG=info shows the log.";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// SQLite file, or postgres://user@host:5432/database [default: a temporary file]
    #[arg(long, value_name = "PATH|URL")]
    db: Option<Database>,

    /// SQLite file to keep
    #[arg(long, value_name = "PATH", conflicts_with = "db")]
    db_file: Option<PathBuf>,

    /// Orders per second
    #[arg(long, value_name = "ORDERS", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    rate: u32,

    /// Duration: 10s, 2m, 1h, or 10 for seconds [default: until Ctrl-C]
    #[arg(long = "for", value_name = "DURATION", value_parser = duration::parse)]
    duration: Option<Duration>,

    /// Handlers that run concurrently
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=1024))]
    concurrency: u16,

    /// Seed of the random orders [default: random]
    #[arg(long)]
    seed: Option<u64>,

    /// Print one JSON object to stdout at the end, and nothing else
    #[arg(long)]
    json: bool,
}

/// Runs the shop for its duration, or until `stop` requests a stop.
pub(crate) async fn run(args: Args, stop: CancellationToken) -> Result<Exit, Problem> {
    let began_at = Instant::now();
    let database = args.db.clone().or_else(|| args.db_file.clone().map(Database::File));
    let (database, folder) = match database {
        Some(database) => (database, None),
        None => {
            let (database, folder) = Database::temporary("shop.db")?;
            (database, Some(folder))
        }
    };
    let name = if folder.is_some() { "SQLite in a temporary file".to_owned() } else { database.to_string() };
    let summary = match &database {
        Database::File(path) => {
            // A temporary file need not survive a loss of power.
            let durability = if folder.is_some() { Durability::Normal } else { Durability::Full };
            let open = SqliteShop::open(path, durability);
            let Some(opened) = stop.run_until_cancelled(open).await else { return Ok(Exit::Interrupted) };
            let shop = opened.map_err(|error| database.problem(&error))?;
            run_shop(&shop, &args, name, began_at, &stop).await
        }
        Database::Postgres { client, options, .. } => {
            let open = async {
                database.check_connection().await?;
                let opened = PostgresShop::open((**client).clone(), (**options).clone()).await;
                opened.map_err(|error| database.problem(&error))
            };
            let Some(opened) = stop.run_until_cancelled(open).await else { return Ok(Exit::Interrupted) };
            run_shop(&opened?, &args, name, began_at, &stop).await
        }
    };
    let summary = summary.map_err(|error| database.problem(&error))?;
    print(&summary, args.json)?;
    match folder.map(TempDir::close) {
        None => eprintln!("The data stays in {database}: the tables shop_… and those of the store."),
        Some(Ok(())) => eprintln!("The temporary file was deleted; --db-file shop.db keeps the data."),
        Some(Err(error)) => eprintln!("The temporary file could not be deleted: {error}"),
    }
    if !args.json {
        eprint!("\n{}", next_steps(given_db(&args).as_deref()));
    }
    Ok(if summary.account.adds_up() { Exit::Success } else { Exit::Failed })
}

fn print(summary: &Summary, is_json: bool) -> Result<(), Problem> {
    if is_json { output::json(&summary.report()) } else { output::text(&summary.to_string()) }
}

/// The value of `--db` for further commands, when the data stays. A URL may contain a password, so it is not repeated.
fn given_db(args: &Args) -> Option<String> {
    match (&args.db, &args.db_file) {
        (Some(Database::File(path)), _) | (None, Some(path)) => Some(path.display().to_string()),
        (Some(Database::Postgres { .. }), _) => Some("URL".to_owned()),
        (None, None) => None,
    }
}

/// Commands to try after the demo.
fn next_steps(db: Option<&str>) -> String {
    let again = ("postrider dev --db-file shop.db".to_owned(), "run again, and keep the data");
    let queue = QUEUES[0];
    let first = db.is_none().then_some(again);
    let db = db.unwrap_or("shop.db");
    let steps = [
        (format!("postrider status --db {db}"), "the backlog of each queue"),
        (format!("postrider dead groups --db {db}"), "why messages failed"),
        (format!("postrider dead ls --queue {queue} --db {db}"), "which messages failed"),
        ("postrider config init".to_owned(), "your own queues: see the quick start in README.md"),
    ];
    let steps: Vec<_> = first.into_iter().chain(steps).collect();
    let width = steps.iter().map(|(command, _)| command.chars().count()).max().unwrap_or_default();
    let lines = steps.iter().map(|(command, purpose)| format!("  {command:<width$}  {purpose}\n"));
    format!("Next:\n{}", lines.collect::<String>())
}

/// One run of the shop, from opening to the audit.
async fn run_shop<S: Shop>(
    shop: &S,
    args: &Args,
    database: String,
    began_at: Instant,
    stop: &CancellationToken,
) -> Result<Summary, Error> {
    let run = Uuid::now_v7().to_string();
    let stats = Arc::new(Stats::new(began_at).map_err(|error| Error::Other(Box::new(error)))?);
    let reasons = Reasons::default();
    let concurrency = usize::from(args.concurrency);
    let worker = metrics::with_local_recorder(&reasons, || handlers::worker(shop, &stats, concurrency))?;

    let notes = Notes::default();
    let mut screen = Screen::open(args.json);
    logs::start(screen.is_terminal().then(|| notes.clone()), DEFAULT_LOG);
    let running = worker.start();
    let producers = start_producers(shop, args, &stats, &run);
    let store = shop.store().clone();
    let mut sampler =
        Sampler::new(store, database, args.duration, Arc::clone(&stats), reasons, notes.clone());
    let mut ticks = interval(REFRESH_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let ends_at = args.duration.map(|duration| Instant::now() + duration);
    loop {
        tokio::select! {
            _ = ticks.tick() => screen.show(&sampler.take(&running, false)),
            () = stop.cancelled() => break,
            () = sleep_until_end(ends_at) => break,
        }
    }

    screen.show(&sampler.take(&running, true));
    producers.stop().await;
    let elapsed = sampler.elapsed();
    let stopped = running.stop(DRAIN_TIMEOUT).await;
    drop((screen, sampler));
    let rolled_back = stats.rolled_back_orders();
    let account = audit(shop, &run, &rolled_back).await?;
    // The screen showed the notes; they are repeated only when they may explain a failure.
    if !(account.adds_up() && stopped.clean) {
        notes.lines().iter().for_each(|note| eprintln!("{note}"));
    }
    shop.close().await;
    Ok(Summary {
        account,
        rolled_back: rolled_back.len() as u64,
        retried: stopped.report.retried,
        elapsed,
        latency: stats.latency(),
        first: stats.first(),
        clean: stopped.clean,
    })
}

/// The running producers.
struct Producers {
    tasks: JoinSet<()>,
    stop: CancellationToken,
}

fn start_producers<S: Shop>(shop: &S, args: &Args, stats: &Arc<Stats>, run: &str) -> Producers {
    let stop = CancellationToken::new();
    let producer = Producer {
        shop: shop.clone(),
        stats: Arc::clone(stats),
        schedule: Arc::new(Schedule::new(f64::from(args.rate))),
        run: run.to_owned(),
        seed: args.seed.unwrap_or_else(rand::random),
        stop: stop.clone(),
    };
    let tasks = (0..PRODUCERS).map(|_| producer.clone().run()).collect();
    Producers { tasks, stop }
}

impl Producers {
    /// Stops the producers after their current transactions.
    async fn stop(self) {
        self.stop.cancel();
        self.tasks.join_all().await;
    }
}

async fn sleep_until_end(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}
