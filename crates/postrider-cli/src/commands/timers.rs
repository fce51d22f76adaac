//! `postrider timers`: active named timers.

use crate::{
    exit::Exit,
    open_database::OpenDatabase,
    output,
    problem::Problem,
    shared::{Listing, Operator, Target},
    table::Table,
};
use postrider::{
    EventType, MessageId, QueueName, State, TimerName, cloudevents::rfc3339, inspect::ActiveTimer,
};
use serde::Serialize;
use tokio_util::sync::CancellationToken;

const EXAMPLES: &str = "Examples:
  postrider timers ls --db shop.db
  postrider timers cancel --queue reminders cart-17 --why 'cart was bought' \\
    --db shop.db

A timer can be cancelled until a worker leases it. The exit code of cancel is 4
when there is no such timer, or its message is in flight.";

#[derive(Debug, clap::Subcommand)]
#[command(after_help = EXAMPLES)]
pub(crate) enum Timers {
    /// List active timers by queue and name
    Ls(LsArgs),
    /// Cancel a timer by its name
    #[command(
        override_usage = "postrider timers cancel [OPTIONS] --db <PATH|URL> --queue <QUEUE>\n                 --why <WHY> <NAME>"
    )]
    Cancel(CancelArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct LsArgs {
    #[command(flatten)]
    target: Target,

    /// Only this queue
    #[arg(long)]
    queue: Option<QueueName>,

    #[command(flatten)]
    listing: Listing,
}

#[derive(Debug, clap::Args)]
pub(crate) struct CancelArgs {
    #[command(flatten)]
    target: Target,

    /// Queue
    #[arg(long)]
    queue: QueueName,

    /// Name of the timer
    name: TimerName,

    #[command(flatten)]
    doer: Operator,

    /// Print one JSON object to stdout, and nothing else
    #[arg(long)]
    json: bool,
}

/// A timer as JSON. Its keys are stable.
#[derive(Debug, Serialize)]
struct Timer {
    queue: QueueName,
    name: TimerName,
    id: MessageId,
    due_at: String,
    #[serde(rename = "type")]
    event_type: Option<EventType>,
    state: State,
}

impl From<ActiveTimer> for Timer {
    fn from(timer: ActiveTimer) -> Self {
        let ActiveTimer { queue, name, id, due_at, event_type, state } = timer;
        Self { queue, name, id, due_at: rfc3339::format(due_at), event_type, state }
    }
}

#[derive(Debug, Serialize)]
struct CancelReport<'c> {
    queue: &'c QueueName,
    name: &'c TimerName,
    cancelled: bool,
}

impl Timers {
    pub(crate) async fn run(self, stop: CancellationToken) -> Result<Exit, Problem> {
        match self {
            Self::Ls(args) => args.target.look(&stop, async |opened| ls(opened, &args).await).await,
            Self::Cancel(args) => args.target.work(async |opened| cancel(opened, &args).await).await,
        }
    }
}

async fn ls(opened: &OpenDatabase, args: &LsArgs) -> Result<Exit, Problem> {
    let timers = opened.backend().timers(args.queue.as_ref(), args.listing.wanted()).await;
    let timers = timers.map_err(|error| opened.problem(&error))?.into_iter().map(Timer::from).collect();
    args.listing.answer(timers, table, "timers")
}

fn table(timers: &[Timer]) -> String {
    let mut table = Table::new(["QUEUE", "NAME", "DUE AT", "STATE", "TYPE", "ID"]);
    for timer in timers {
        table.push([
            timer.queue.to_string(),
            timer.name.to_string(),
            timer.due_at.clone(),
            timer.state.to_string(),
            timer.event_type.as_ref().map(EventType::to_string).unwrap_or_default(),
            timer.id.to_string(),
        ]);
    }
    table.to_string()
}

async fn cancel(opened: &OpenDatabase, args: &CancelArgs) -> Result<Exit, Problem> {
    let CancelArgs { queue, name, .. } = args;
    let cancelled = opened.backend().drop_timer(queue, name, &args.doer.action()?).await;
    if !cancelled.map_err(|error| opened.problem(&error))? {
        return Err(Problem::new(
            format!("queue {queue} has no timer {name} that can be cancelled"),
            format!("list timers: postrider timers ls --queue {queue}; a timer that is leased is in flight"),
        )
        .with_exit(Exit::NotFound));
    }
    if args.json {
        output::json(&CancelReport { queue, name, cancelled: true })?;
    } else {
        output::text(&format!("cancelled timer {name}"))?;
    }
    Ok(Exit::Success)
}
