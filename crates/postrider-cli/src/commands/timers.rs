//! `postrider timers`: named timers that live.

use crate::{
    answer,
    exit::Exit,
    opened::Opened,
    problem::Problem,
    shared::{Doer, Listing, Target},
    table::Table,
};
use postrider::{
    EventType, MessageId, QueueName, State, TimerName, cloudevents::rfc3339, inspect::LivingTimer,
};
use serde::Serialize;
use tokio_util::sync::CancellationToken;

const EXAMPLES: &str = "Examples:
  postrider timers ls --db shop.db                                              all that live, by queue and name
  postrider timers cancel --queue reminders cart-17 --why 'it was bought' --db shop.db

A timer can be cancelled until somebody has it in hand. It ends with 4 when there is none, or it is being delivered.";

#[derive(Debug, clap::Subcommand)]
#[command(after_help = EXAMPLES)]
pub(crate) enum Timers {
    /// List the timers that live, by queue and name
    Ls(LsArgs),
    /// Cancel a timer by its name
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

    /// The queue
    #[arg(long)]
    queue: QueueName,

    /// The name of the timer
    name: TimerName,

    #[command(flatten)]
    doer: Doer,

    /// Print one object of JSON, and nothing else, on stdout
    #[arg(long)]
    json: bool,
}

/// A timer, for programs. Its keys are a promise.
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

impl From<LivingTimer> for Timer {
    fn from(timer: LivingTimer) -> Self {
        let LivingTimer { queue, name, id, due_at, event_type, state } = timer;
        Self { queue, name, id, due_at: rfc3339::format(due_at), event_type, state }
    }
}

#[derive(Debug, Serialize)]
struct Cancelled<'c> {
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

async fn ls(opened: &Opened, args: &LsArgs) -> Result<Exit, Problem> {
    let timers = opened.inspect().timers(args.queue.as_ref(), args.listing.wanted()).await;
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

async fn cancel(opened: &Opened, args: &CancelArgs) -> Result<Exit, Problem> {
    let CancelArgs { queue, name, .. } = args;
    let cancelled = opened.operate().drop_timer(queue, name, &args.doer.action()?).await;
    if !cancelled.map_err(|error| opened.problem(&error))? {
        return Err(Problem::new(
            format!("queue {queue} has no timer {name} that can be cancelled"),
            format!("look with postrider timers ls --queue {queue}: one that is leased is being delivered"),
        )
        .ending(Exit::NotFound));
    }
    if args.json {
        answer::json(&Cancelled { queue, name, cancelled: true })?;
    } else {
        answer::text(&format!("{name} is cancelled"))?;
    }
    Ok(Exit::Well)
}
