//! `postrider dev`: a small shop, to see with one's own eyes what the outbox does.
//!
//! Producers place orders in transactions of their own tables, each with its event; some transactions are rolled back. A worker
//! handles the events: most in a transaction that writes a row, some slowly, some as timers, some only at the second try, some
//! never. At the end the books are audited: everything that was committed must be done, dead or waiting, and nothing twice.

mod audit;
mod handlers;
mod ledger;
mod order;
mod postgres;
mod producer;
mod reasons;
mod screen;
mod shop;
mod snapshot;
mod sqlite;
mod summary;
mod view;

use crate::{
    answer,
    database::Database,
    duration,
    exit::Exit,
    logs::{self, Notes},
    problem::Problem,
};
use audit::audit;
use ledger::Ledger;
use postgres::PostgresShop;
use postrider::{Error, sqlite::Durability};
use producer::{PRODUCERS, Producer, Schedule};
use reasons::Reasons;
use screen::{DRAWN_EVERY, Screen};
use shop::Shop;
use snapshot::Camera;
use sqlite::SqliteShop;
use std::{path::PathBuf, sync::Arc, time::Duration};
use summary::Summary;
use tempfile::TempDir;
use tokio::{
    task::JoinSet,
    time::{Instant, MissedTickBehavior, interval, sleep_until},
};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// How long what is in hand may take to end.
const DRAINED_WITHIN: Duration = Duration::from_secs(10);

/// Failing handlers are part of the show, and counted; they need not be told one by one, and neither need connections: whoever
/// used one says so.
const QUIET: &str = "warn,postrider_engine::worker=error,sqlx_core=error";

const EXAMPLES: &str = "Examples:
  postrider dev                                   until Ctrl-C, in a temporary file
  postrider dev --for 10s --json                  one line of JSON at the end, for scripts
  postrider dev --rate 2000 --db-file shop.db     faster, and keep the data
  postrider dev --db postgres://localhost/shop    the same on PostgreSQL

It ends with 0 when everything that was committed is accounted for, once; with 1 when something was lost or doubled, or
failed; with 2 when it was called wrongly. POSTRIDER_LOG=info shows what the libraries have to say.";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// A file for SQLite, or postgres://user@host:5432/database; a temporary file unless given
    #[arg(long, value_name = "PATH|URL")]
    db: Option<Database>,

    /// A file for SQLite, which is kept
    #[arg(long, value_name = "PATH", conflicts_with = "db")]
    db_file: Option<PathBuf>,

    /// How many orders are placed a second
    #[arg(long, value_name = "ORDERS", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    rate: u32,

    /// How long it runs: 10s, 2m, 1h, or 10 for seconds; until Ctrl-C unless given
    #[arg(long = "for", value_name = "DURATION", value_parser = duration::parse)]
    lasts: Option<Duration>,

    /// How many handlers run at once
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=1024))]
    concurrency: u16,

    /// Decides which orders are placed; chance unless given
    #[arg(long)]
    seed: Option<u64>,

    /// Print one object of JSON at the end, and nothing else, on stdout
    #[arg(long)]
    json: bool,
}

/// Runs the shop until its time is over or `stop` asks it to close.
pub(crate) async fn run(args: Args, stop: CancellationToken) -> Result<Exit, Problem> {
    let began_at = Instant::now();
    let given = args.db.clone().or_else(|| args.db_file.clone().map(Database::File));
    let (database, folder) = match given {
        Some(database) => (database, None),
        None => {
            let (database, folder) = Database::temporary("shop.db")?;
            (database, Some(folder))
        }
    };
    let name = if folder.is_some() { "SQLite in a temporary file".to_owned() } else { database.to_string() };
    let summary = match &database {
        Database::File(path) => {
            // What is thrown away need not survive a loss of power.
            let durability = if folder.is_some() { Durability::Normal } else { Durability::Full };
            let opening = SqliteShop::open(path, durability);
            let Some(opened) = stop.run_until_cancelled(opening).await else { return Ok(Exit::Interrupted) };
            let shop = opened.map_err(|error| database.problem(&error))?;
            trade(&shop, &args, name, began_at, &stop).await
        }
        Database::Postgres { url, options, .. } => {
            let opening = async {
                database.knock().await?;
                let opened = PostgresShop::open(url, (**options).clone()).await;
                opened.map_err(|error| database.problem(&error))
            };
            let Some(opened) = stop.run_until_cancelled(opening).await else { return Ok(Exit::Interrupted) };
            trade(&opened?, &args, name, began_at, &stop).await
        }
    };
    let summary = summary.map_err(|error| database.problem(&error))?;
    print(&summary, args.json)?;
    match folder.map(TempDir::close) {
        None => eprintln!("The data stays, in {database}: the tables shop_… and those of the store."),
        Some(Ok(())) => eprintln!("The temporary file is gone; --db-file shop.db would keep the data."),
        Some(Err(error)) => eprintln!("The temporary file could not be removed: {error}"),
    }
    Ok(if summary.account.adds_up() { Exit::Well } else { Exit::Failed })
}

fn print(summary: &Summary, is_json: bool) -> Result<(), Problem> {
    if is_json { answer::json(&summary.report()) } else { answer::text(&summary.to_string()) }
}

/// One day in the shop, from opening to the audit.
async fn trade<S: Shop>(
    shop: &S,
    args: &Args,
    database: String,
    began_at: Instant,
    stop: &CancellationToken,
) -> Result<Summary, Error> {
    let run = Uuid::now_v7().to_string();
    let ledger = Arc::new(Ledger::new(began_at).map_err(|error| Error::Other(Box::new(error)))?);
    let reasons = Reasons::default();
    let concurrency = usize::from(args.concurrency);
    let worker = metrics::with_local_recorder(&reasons, || handlers::worker(shop, &ledger, concurrency))?;

    let notes = Notes::default();
    let mut screen = Screen::open(args.json);
    logs::start(screen.is_terminal().then(|| notes.clone()), QUIET);
    let running = worker.start();
    let producers = produce(shop, args, &ledger, &run);
    let store = shop.store().clone();
    let mut camera = Camera::new(store, database, args.lasts, Arc::clone(&ledger), reasons, notes.clone());
    let mut ticks = interval(DRAWN_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let closing_time = args.lasts.map(|lasts| Instant::now() + lasts);
    loop {
        tokio::select! {
            _ = ticks.tick() => screen.show(&camera.take(&running, false)),
            () = stop.cancelled() => break,
            () = until(closing_time) => break,
        }
    }

    screen.show(&camera.take(&running, true));
    producers.stop().await;
    let elapsed = camera.elapsed();
    let stopped = running.shutdown(DRAINED_WITHIN).await;
    drop((screen, camera));
    notes.lines().iter().for_each(|note| eprintln!("{note}"));
    let abandoned = ledger.abandoned_orders();
    let account = audit(shop, &run, &abandoned).await?;
    shop.close().await;
    Ok(Summary {
        account,
        rolled_back: abandoned.len() as u64,
        retried: stopped.tally.retried,
        elapsed,
        latency: ledger.latency(),
        first: ledger.first(),
        is_clean: stopped.is_clean,
    })
}

/// The producers at work.
struct Producers {
    tasks: JoinSet<()>,
    stop: CancellationToken,
}

fn produce<S: Shop>(shop: &S, args: &Args, ledger: &Arc<Ledger>, run: &str) -> Producers {
    let stop = CancellationToken::new();
    let producer = Producer {
        shop: shop.clone(),
        ledger: Arc::clone(ledger),
        schedule: Arc::new(Schedule::new(f64::from(args.rate))),
        run: run.to_owned(),
        seed: args.seed.unwrap_or_else(rand::random),
        stop: stop.clone(),
    };
    let tasks = (0..PRODUCERS).map(|_| producer.clone().run()).collect();
    Producers { tasks, stop }
}

impl Producers {
    /// Lets each finish its transaction.
    async fn stop(self) {
        self.stop.cancel();
        self.tasks.join_all().await;
    }
}

async fn until(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}
