//! `postrider tail`: prints message events as they happen.
//!
//! It polls the store, and prints the differences to the last poll. Polling changes nothing. A notification of a commit triggers a poll
//! earlier; correctness depends on the interval alone.

mod event;
mod watcher;

use crate::{
    duration, exit::Exit, open_database::OpenDatabase, output, problem::Problem, shared::Target, timestamp,
};
use event::{Event, EventKind};
use postrider::{Error, MessageId, OrderingKey, QueueName, notifier::Listener};
use std::time::{Duration, SystemTime};
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;
use watcher::Watcher;

/// The minimum interval between two polls, however many notifications arrive.
const MIN_POLL_INTERVAL: Duration = Duration::from_millis(50);

const EXAMPLES: &str = "Examples:
  postrider tail --db shop.db                 all queues, until Ctrl-C
  postrider tail --queue orders --key order-17 --db shop.db
  postrider tail --queue orders --since 1m --until dead --db shop.db
  postrider tail 0190f3a1-… --since 1h --for 10m --jsonl --db shop.db

Events are staged, leased, scheduled (a retry, with its error), pending
(released), dead, done and gone (delivered without keep_for, or discarded).

tail polls: it compares up to 1000 messages in each state of a queue with the
previous poll, and prints the net change. A message that is staged and delivered
between two polls is visible only when its queue keeps it (keep_for). Ctrl-C
exits with 130.";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    target: Target,

    /// Only the message with this id
    #[arg(conflicts_with = "key")]
    id: Option<MessageId>,

    /// Only this queue
    #[arg(long)]
    queue: Option<QueueName>,

    /// Only messages with this key
    #[arg(long)]
    key: Option<OrderingKey>,

    /// Start with events since: 2026-10-14T12:00:00Z, or 2h for two hours ago
    #[arg(long, value_name = "MOMENT", value_parser = timestamp::parse)]
    since: Option<SystemTime>,

    /// Poll interval
    #[arg(long, value_name = "DURATION", default_value = "500ms", value_parser = duration::parse)]
    interval: Duration,

    /// Exit after this time
    #[arg(long = "for", value_name = "DURATION", value_parser = duration::parse)]
    duration: Option<Duration>,

    /// Exit after N events
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,

    /// Exit after the first event of this kind
    #[arg(long, value_name = "EVENT")]
    until: Option<EventKind>,

    /// Print one JSON object per line to stdout, and nothing else
    #[arg(long)]
    jsonl: bool,
}

pub(crate) async fn run(args: Args, stop: CancellationToken) -> Result<Exit, Problem> {
    args.target.look(&stop, async |opened| follow(opened, &args).await).await
}

async fn follow(opened: &OpenDatabase, args: &Args) -> Result<Exit, Problem> {
    let ends_at = args.duration.map(|duration| Instant::now() + duration);
    let problem = |error: Error| opened.problem(&error);
    let inspect = opened.backend();
    let mut watcher = Watcher::new(args);
    let mut printer = EventPrinter { args, printed: 0, is_done: false };
    printer.print(watcher.begin(&*inspect).await.map_err(problem)?)?;
    watcher.warn();
    eprintln!("Watching; Ctrl-C to quit.");
    let mut listener = listen(opened, &watcher).await;
    while !printer.is_done {
        let polled_at = Instant::now();
        tokio::select! {
            () = wait(args.interval, &mut listener) => {}
            () = sleep_until_end(ends_at) => return Ok(Exit::Success),
        }
        sleep_until(polled_at + MIN_POLL_INTERVAL.min(args.interval)).await;
        printer.print(watcher.poll(&*inspect).await.map_err(problem)?)?;
        watcher.warn();
    }
    Ok(Exit::Success)
}

async fn sleep_until_end(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// None when the store has no notifications for this user: polling suffices.
async fn listen(opened: &OpenDatabase, watcher: &Watcher) -> Option<Box<dyn Listener>> {
    opened.backend().listen(&watcher.queues()).await.ok()
}

async fn wait(interval: Duration, listener: &mut Option<Box<dyn Listener>>) {
    let notification = async {
        match listener {
            Some(listener) => listener.wait().await.map(drop),
            None => std::future::pending().await,
        }
    };
    let has_failed = tokio::select! {
        notified = notification => notified.is_err(),
        () = sleep(interval) => false,
    };
    if has_failed {
        *listener = None;
    }
}

/// Prints events until an end condition is met.
#[derive(Debug)]
struct EventPrinter<'a> {
    args: &'a Args,
    printed: u64,
    is_done: bool,
}

impl EventPrinter<'_> {
    fn print(&mut self, events: Vec<Event>) -> Result<(), Problem> {
        for event in events {
            if self.is_done {
                break;
            }
            if self.args.jsonl { output::json(&event) } else { output::text(&event.line()) }?;
            self.printed += 1;
            let is_last = self.args.count.is_some_and(|count| self.printed >= count);
            self.is_done = is_last || self.args.until == Some(event.kind());
        }
        Ok(())
    }
}
