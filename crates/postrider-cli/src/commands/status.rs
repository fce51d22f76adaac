//! `postrider status`: the backlog, lag and dead letters of the queues.

use crate::{
    commands::pause::{self, Pause},
    duration,
    exit::Exit,
    format,
    open_database::OpenDatabase,
    output,
    problem::Problem,
    shared::Target,
    table::Table,
};
use postrider::{
    Error, QueueName,
    follow_up::{QUEUE, StatusCounts},
    inspect::{CappedCount, Counts, Inspect},
};
use serde::Serialize;
use std::time::Duration;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

/// Cap on the number of blocked keys that are counted.
const MOST_KEYS: usize = 1000;

/// The poll interval of `--wait`.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

const EXAMPLES: &str = "Examples:
  postrider status --db shop.db                           all queues
  postrider status --db shop.db --exit-code --max-lag 5m  for a script
  postrider status --db shop.db --wait 30s                until idle
  POSTRIDER_DB=postgres://localhost/shop postrider status

With --exit-code, the exit code is 1 when there are dead letters or blocked
keys, or when the lag of a queue exceeds --max-lag. A count such as 10000+ is
capped. DONE counts the messages that a queue keeps after delivery (keep_for).";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    target: Target,

    /// Only this queue
    #[arg(long)]
    queue: Option<QueueName>,

    /// Exit with 1 when something needs attention
    #[arg(long)]
    exit_code: bool,

    /// Maximum lag of a queue: 30s, 5m, 1h
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, requires = "exit_code")]
    max_lag: Option<Duration>,

    /// Wait until nothing is due or in flight; exit with 1 on timeout
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    wait: Option<Duration>,

    /// Print one JSON object to stdout, and nothing else
    #[arg(long)]
    json: bool,
}

/// The status as JSON. Its keys are stable.
#[derive(Debug, Serialize)]
struct Report {
    queues: Vec<Queue>,
    /// None when the database has no follow-ups.
    follow_ups: Option<StatusCounts>,
    /// Paused queues and destinations.
    paused: Vec<Pause>,
    /// Conditions that need attention.
    warnings: Vec<String>,
}

#[derive(Debug, Clone, Serialize)]
pub(super) struct Queue {
    pub(super) queue: QueueName,
    pub(super) pending: Count,
    pub(super) leased: Count,
    pub(super) scheduled: Count,
    pub(super) dead: Count,
    pub(super) done: Count,
    lag_seconds: Option<f64>,
    pub(super) blocked_keys: Count,
    #[serde(skip)]
    pub(super) lag: Option<Duration>,
}

#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct Count {
    pub(super) count: u64,
    pub(super) capped: bool,
}

impl From<CappedCount> for Count {
    fn from(CappedCount { at_least, capped }: CappedCount) -> Self {
        Self { count: at_least, capped }
    }
}

impl Count {
    pub(super) fn to_text(self) -> String {
        format::tally(CappedCount { at_least: self.count, capped: self.capped })
    }
}

pub(crate) async fn run(args: Args, stop: CancellationToken) -> Result<Exit, Problem> {
    args.target.look(&stop, async |opened| status(opened, &args).await).await
}

async fn status(opened: &OpenDatabase, args: &Args) -> Result<Exit, Problem> {
    let problem = |error| opened.problem(&error);
    let inspect = &*opened.backend();
    let only = args.queue.as_ref();
    let (queues, is_idle) = match args.wait {
        Some(wait) => wait_until_idle(inspect, only, wait).await.map_err(problem)?,
        None => (queues(inspect, only).await.map_err(problem)?, true),
    };
    if let (Some(queue), []) = (only, &queues[..]) {
        return Err(missing(queue));
    }
    let follow_ups = match queues.iter().find(|queue| queue.queue.as_str() == QUEUE) {
        Some(queue) => Some(opened.backend().status_counts(&queue.queue).await.map_err(problem)?),
        None => None,
    };
    let paused = pause::all(opened).await.map_err(problem)?;
    let mut warnings: Vec<_> = queues.iter().flat_map(|queue| warnings(queue, args.max_lag)).collect();
    if let (false, Some(wait)) = (is_idle, args.wait) {
        let busy = queues.iter().filter(|queue| is_busy(queue)).map(|queue| queue.queue.as_str());
        let busy: Vec<_> = busy.collect();
        warnings.push(format!(
            "not idle within {}: {}; is a worker running?",
            format::span(wait),
            busy.join(", ")
        ));
    }
    let report = Report { queues, follow_ups, paused, warnings };
    if args.json { output::json(&report) } else { show(&report, opened) }?;
    let has_failed = !is_idle || args.exit_code && !report.warnings.is_empty();
    Ok(if has_failed { Exit::Failed } else { Exit::Success })
}

/// No message was staged in a queue of that name, and nobody declared it.
pub(super) fn missing(queue: &QueueName) -> Problem {
    let help = "list the queues: postrider status";
    Problem::new(format!("there is no queue {queue}"), help).with_exit(Exit::NotFound)
}

/// Waits until nothing is due or in flight, at most `wait`. Returns the queues, and whether they are idle.
async fn wait_until_idle(
    inspect: &dyn Inspect,
    only: Option<&QueueName>,
    wait: Duration,
) -> Result<(Vec<Queue>, bool), Error> {
    let until = Instant::now() + wait;
    loop {
        let queues = queues(inspect, only).await?;
        let is_idle = !queues.iter().any(is_busy);
        if is_idle || Instant::now() >= until {
            return Ok((queues, is_idle));
        }
        sleep(POLL_INTERVAL.min(until.saturating_duration_since(Instant::now()))).await;
    }
}

fn is_busy(queue: &Queue) -> bool {
    queue.pending.count + queue.leased.count > 0
}

/// The status of every queue, or of one.
pub(super) async fn queues(inspect: &dyn Inspect, only: Option<&QueueName>) -> Result<Vec<Queue>, Error> {
    let mut queues = Vec::new();
    let mut counts = inspect.counts().await?;
    counts.retain(|name, _| only.is_none_or(|only| only == name));
    for (name, counts) in counts {
        let lag = inspect.lag(&name).await?;
        let blocked = inspect.blocked_keys(&name, MOST_KEYS + 1).await?.len();
        queues.push(queue(name, counts, lag, blocked));
    }
    Ok(queues)
}

fn queue(queue: QueueName, counts: Counts, lag: Option<Duration>, blocked: usize) -> Queue {
    let Counts { pending, leased, scheduled, dead, done } = counts;
    Queue {
        queue,
        pending: pending.into(),
        leased: leased.into(),
        scheduled: scheduled.into(),
        dead: dead.into(),
        done: done.into(),
        lag_seconds: lag.map(|lag| lag.as_secs_f64()),
        blocked_keys: CappedCount::new(blocked as u64, MOST_KEYS as u64).into(),
        lag,
    }
}

fn warnings(queue: &Queue, max_lag: Option<Duration>) -> Vec<String> {
    let name = &queue.queue;
    let mut warnings = Vec::new();
    if queue.dead.count > 0 {
        let command = if name.as_str() == QUEUE { "saga abandoned" } else { "dead groups" };
        let noun = if queue.dead.count == 1 { "dead letter" } else { "dead letters" };
        warnings.push(format!("{name}: {} {noun}; inspect: postrider {command}", queue.dead.to_text()));
    }
    if queue.blocked_keys.count > 0 {
        let blocked = queue.blocked_keys.to_text();
        let noun = if queue.blocked_keys.count == 1 { "key" } else { "keys" };
        warnings.push(format!(
            "{name}: {blocked} blocked {noun}; inspect: postrider keys blocked --queue {name}"
        ));
    }
    if let (Some(lag), Some(most)) = (queue.lag, max_lag)
        && lag > most
    {
        let (lag, most) = (format::span(lag), format::span(most));
        warnings.push(format!("{name}: lag {lag} exceeds {most}; is its worker running?"));
    }
    warnings
}

fn show(report: &Report, opened: &OpenDatabase) -> Result<(), Problem> {
    if report.queues.is_empty() {
        return output::text(&format!("{}: no queues yet", opened.database()));
    }
    let mut table =
        Table::new(["QUEUE", "PENDING", "LEASED", "SCHEDULED", "DEAD", "DONE", "LAG", "BLOCKED KEYS"]);
    for queue in &report.queues {
        table.push([
            queue.queue.to_string(),
            queue.pending.to_text(),
            queue.leased.to_text(),
            queue.scheduled.to_text(),
            queue.dead.to_text(),
            queue.done.to_text(),
            queue.lag.map(format::span).unwrap_or_default(),
            queue.blocked_keys.to_text(),
        ]);
    }
    output::text(&table.to_string())?;
    if let Some(counts) = &report.follow_ups {
        output::text(&format!("\nfollow-ups: {}", format::list(counts.iter())))?;
    }
    report.paused.iter().for_each(|pause| eprintln!("{}", pause.to_line()));
    report.warnings.iter().for_each(|warning| eprintln!("{warning}"));
    Ok(())
}
