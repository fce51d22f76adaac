//! `postrider status`: how the queues are.

use crate::{
    answer,
    commands::pause::{self, Pause},
    duration,
    exit::Exit,
    opened::Opened,
    problem::Problem,
    shared::Target,
    table::Table,
    words,
};
use postrider::{
    Error, QueueName,
    follow_up::{QUEUE, StatusCounts},
    inspect::{Counts, Inspect, Tally},
};
use serde::Serialize;
use std::time::Duration;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

/// How many blocked keys are counted.
const MOST_KEYS: usize = 1000;

/// How often it looks while it waits.
const LOOKED_EVERY: Duration = Duration::from_millis(100);

const EXAMPLES: &str = "Examples:
  postrider status --db shop.db                                 what each queue holds
  postrider status --db shop.db --exit-code --max-lag 5m        for a check that runs by itself
  postrider status --db shop.db --wait 30s                      for a script: until everything that is due is done
  POSTRIDER_DB=postgres://localhost/shop postrider status       the database from the environment

With --exit-code it ends with 1 when there are dead letters or blocked keys, or when a queue lags behind more than
--max-lag. A count with + stopped at its cap.";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    target: Target,

    /// Only this queue
    #[arg(long)]
    queue: Option<QueueName>,

    /// End with 1 when something needs a hand
    #[arg(long)]
    exit_code: bool,

    /// How long the oldest message that is due may wait: 30s, 5m, 1h
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, requires = "exit_code")]
    max_lag: Option<Duration>,

    /// First wait until nothing is due or in hand any more; end with 1 when that takes longer
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    wait: Option<Duration>,

    /// Print one object of JSON, and nothing else, on stdout
    #[arg(long)]
    json: bool,
}

/// What was found, for programs. Its keys are a promise.
#[derive(Debug, Serialize)]
struct Report {
    queues: Vec<Queue>,
    /// None when nobody uses them.
    follow_ups: Option<StatusCounts>,
    /// What waits because somebody said so.
    paused: Vec<Pause>,
    /// What needs a hand.
    trouble: Vec<String>,
}

#[derive(Debug, Clone, Serialize)]
pub(super) struct Queue {
    pub(super) queue: QueueName,
    pub(super) pending: Count,
    pub(super) leased: Count,
    pub(super) waiting: Count,
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

impl From<Tally> for Count {
    fn from(Tally { at_least, capped }: Tally) -> Self {
        Self { count: at_least, capped }
    }
}

impl Count {
    pub(super) fn shown(self) -> String {
        words::tally(Tally { at_least: self.count, capped: self.capped })
    }
}

pub(crate) async fn run(args: Args, stop: CancellationToken) -> Result<Exit, Problem> {
    args.target.look(&stop, async |opened| status(opened, &args).await).await
}

async fn status(opened: &Opened, args: &Args) -> Result<Exit, Problem> {
    let problem = |error| opened.problem(&error);
    let inspect = &*opened.inspect();
    let only = args.queue.as_ref();
    let (queues, is_idle) = match args.wait {
        Some(wait) => idle(inspect, only, wait).await.map_err(problem)?,
        None => (queues(inspect, only).await.map_err(problem)?, true),
    };
    if let (Some(queue), []) = (only, &queues[..]) {
        return Err(missing(queue));
    }
    let follow_ups = match queues.iter().find(|queue| queue.queue.as_str() == QUEUE) {
        Some(queue) => Some(opened.follow_ups().status_counts(&queue.queue).await.map_err(problem)?),
        None => None,
    };
    let paused = pause::all(opened).await.map_err(problem)?;
    let mut trouble: Vec<_> = queues.iter().flat_map(|queue| trouble(queue, args.max_lag)).collect();
    if let (false, Some(wait)) = (is_idle, args.wait) {
        let busy = queues.iter().filter(|queue| is_busy(queue)).map(|queue| queue.queue.as_str());
        let busy: Vec<_> = busy.collect();
        trouble.push(format!(
            "not done within {}: {}; is a worker running?",
            words::span(wait),
            busy.join(", ")
        ));
    }
    let report = Report { queues, follow_ups, paused, trouble };
    if args.json { answer::json(&report) } else { show(&report, opened) }?;
    let is_bad = !is_idle || args.exit_code && !report.trouble.is_empty();
    Ok(if is_bad { Exit::Failed } else { Exit::Well })
}

/// Nobody has staged or declared anything under that name.
pub(super) fn missing(queue: &QueueName) -> Problem {
    let help = "look with postrider status for those that are there";
    Problem::new(format!("there is no queue {queue}"), help).ending(Exit::NotFound)
}

/// How the queues are when nothing is due or in hand any more, or after so long. Answers whether it came to that.
async fn idle(
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
        sleep(LOOKED_EVERY.min(until.saturating_duration_since(Instant::now()))).await;
    }
}

fn is_busy(queue: &Queue) -> bool {
    queue.pending.count + queue.leased.count > 0
}

/// How every queue is, or only this one.
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
    let Counts { pending, leased, waiting, dead, done } = counts;
    Queue {
        queue,
        pending: pending.into(),
        leased: leased.into(),
        waiting: waiting.into(),
        dead: dead.into(),
        done: done.into(),
        lag_seconds: lag.map(|lag| lag.as_secs_f64()),
        blocked_keys: Tally::new(blocked as u64, MOST_KEYS as u64).into(),
        lag,
    }
}

fn trouble(queue: &Queue, max_lag: Option<Duration>) -> Vec<String> {
    let name = &queue.queue;
    let mut trouble = Vec::new();
    if queue.dead.count > 0 {
        let look = if name.as_str() == QUEUE { "saga abandoned" } else { "dead groups" };
        trouble.push(format!("{name}: {} dead; look: postrider {look}", queue.dead.shown()));
    }
    if queue.blocked_keys.count > 0 {
        let blocked = queue.blocked_keys.shown();
        trouble.push(format!("{name}: {blocked} blocked; look: postrider keys blocked --queue {name}"));
    }
    if let (Some(lag), Some(most)) = (queue.lag, max_lag)
        && lag > most
    {
        let (lag, most) = (words::span(lag), words::span(most));
        trouble.push(format!("{name}: lags {lag} behind, more than {most}; is its worker running?"));
    }
    trouble
}

fn show(report: &Report, opened: &Opened) -> Result<(), Problem> {
    if report.queues.is_empty() {
        return answer::text(&format!("{}: no queues yet", opened.database()));
    }
    let mut table =
        Table::new(["QUEUE", "PENDING", "LEASED", "WAITING", "DEAD", "DONE", "LAG", "BLOCKED KEYS"]);
    for queue in &report.queues {
        table.push([
            queue.queue.to_string(),
            queue.pending.shown(),
            queue.leased.shown(),
            queue.waiting.shown(),
            queue.dead.shown(),
            queue.done.shown(),
            queue.lag.map(words::span).unwrap_or_default(),
            queue.blocked_keys.shown(),
        ]);
    }
    answer::text(&table.to_string())?;
    if let Some(counts) = &report.follow_ups {
        answer::text(&format!("\nfollow-ups: {}", words::list(counts.iter())))?;
    }
    report.paused.iter().for_each(|pause| eprintln!("{}", pause.told()));
    report.trouble.iter().for_each(|trouble| eprintln!("{trouble}"));
    Ok(())
}
