//! `postrider replay`: delivers kept messages again.
//!
//! By default a kept message goes back into its own queue, under its own id, as a requeued dead letter does. A consumer that has
//! admitted an id drops its duplicates, so this fills gaps. To rebuild state from the events, give them new ids, or copy them to
//! another queue with a consumer of its own.

mod checkpoint;
mod copies;
mod destination;
mod requeue;

use crate::{
    confirm,
    exit::Exit,
    open_database::OpenDatabase,
    output,
    problem::Problem,
    rate::Rate,
    shared::{Operator, Target},
    timestamp,
};
use checkpoint::Checkpoint;
use destination::Destination;
use postrider::{
    EventType, OrderingKey, QueueName, Template,
    inspect::{Action, Selection, SelectionSummary, StateFilter},
};
use serde::Serialize;
use std::{path::PathBuf, time::SystemTime};
use tokio_util::sync::CancellationToken;

const EXAMPLES: &str = "Examples:
  postrider replay --queue orders --since 2h --dry-run --why 'gap' --db shop.db
  postrider replay --queue orders --since 2h --rate 100/s --yes --why 'gap' \\
    --db shop.db
  postrider replay --queue orders --to-queue projections --yes \\
    --why 'new index' --db shop.db
  postrider replay --queue orders --new-ids --key order-17 --yes \\
    --why 'rebuild' --db shop.db
  postrider replay --queue orders --to events --since 2026-10-14T12:00:00Z \\
    --yes --why 'lost topic' --db shop.db

Only kept messages can be replayed; keep_for sets how long a queue keeps them.
Without --to-queue, --to and --new-ids the messages themselves go back into
their queue, under their own ids: a consumer that has admitted an id drops the
duplicate, which fills gaps and repeats no effect. With --new-ids they are new
messages, with the old id in the header replay-of.

Ctrl-C stops between two steps, and prints the command that continues.";

/// The header with the id of the original, in a copy that has a new id.
const ORIGINAL: &str = "replay-of";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    target: Target,

    /// Queue that keeps the messages
    #[arg(long)]
    queue: QueueName,

    /// Only messages delivered since: 2026-10-14T12:00:00Z, or 2h for two hours ago
    #[arg(long, value_name = "MOMENT", value_parser = timestamp::parse)]
    since: Option<SystemTime>,

    /// Only messages delivered until then
    #[arg(long, value_name = "MOMENT", value_parser = timestamp::parse)]
    until: Option<SystemTime>,

    /// Only messages of this type
    #[arg(long = "type", value_name = "TYPE")]
    event_type: Option<EventType>,

    /// Only messages with this key
    #[arg(long)]
    key: Option<OrderingKey>,

    /// Copy the messages to this queue instead, under their own ids
    #[arg(long, value_name = "QUEUE", conflicts_with = "to")]
    to_queue: Option<QueueName>,

    /// Send the messages to this destination of postrider.toml, bypassing queues
    #[arg(long, value_name = "DESTINATION")]
    to: Option<String>,

    /// Address at the destination, when no route has one: orders.{type}
    #[arg(long, value_name = "ADDRESS", requires = "to", value_parser = address)]
    address: Option<Template>,

    /// Configuration file [default: $POSTRIDER_CONFIG, or postrider.toml]
    #[arg(long, value_name = "FILE", requires = "to")]
    config: Option<PathBuf>,

    /// Give copies new ids, with the old id in the header replay-of
    #[arg(long, conflicts_with = "to")]
    new_ids: bool,

    /// Rate limit: 100/s, 6000/m
    #[arg(long, value_name = "RATE")]
    rate: Option<Rate>,

    /// Continue from the checkpoint that an interrupted replay printed
    #[arg(long, value_name = "CHECKPOINT")]
    after: Option<Checkpoint>,

    #[command(flatten)]
    doer: Operator,

    /// Print how many messages are selected, and change nothing
    #[arg(long)]
    dry_run: bool,

    /// Skip the confirmation
    #[arg(long)]
    yes: bool,

    /// Print one JSON object to stdout, and nothing else
    #[arg(long)]
    json: bool,
}

fn address(text: &str) -> Result<Template, postrider::Invalid> {
    Template::parse(text)
}

/// The outcome as JSON. Its keys are stable.
#[derive(Debug, Serialize)]
struct Report<'r> {
    queue: &'r QueueName,
    /// How many messages were selected.
    matched: u64,
    /// How many messages were replayed.
    replayed: u64,
    dry_run: bool,
    /// When the messages were counted; later deliveries are not replayed.
    until: String,
    /// The checkpoint to continue from, when the replay did not finish.
    after: Option<String>,
}

/// How far the replay got.
#[derive(Debug)]
struct Outcome {
    replayed: u64,
    ended: End,
}

#[derive(Debug)]
enum End {
    Done,
    /// A signal stopped the replay at this checkpoint.
    Stopped(Option<Checkpoint>),
    /// The replay failed, and can continue from this checkpoint.
    Failed(Problem, Option<Checkpoint>),
}

pub(crate) async fn run(args: Args, stop: CancellationToken) -> Result<Exit, Problem> {
    let action = args.doer.action()?;
    args.target.work(async |opened| replay(opened, &args, &action, &stop).await).await
}

async fn replay(
    opened: &OpenDatabase,
    args: &Args,
    action: &Action,
    stop: &CancellationToken,
) -> Result<Exit, Problem> {
    let destination = args.to.as_ref().map(|to| Destination::open(args, to)).transpose()?;
    let selection = Selection {
        key: args.key.clone(),
        event_type: args.event_type.clone(),
        since: args.since.max(args.after.as_ref().map(Checkpoint::at)),
        until: args.until,
        ..Selection::new(args.queue.clone(), StateFilter::Done)
    };
    let summary = stop.run_until_cancelled(opened.backend().summarize(&selection)).await;
    let Some(selected) = summary else { return Ok(Exit::Interrupted) };
    let selected = selected.map_err(|error| opened.problem(&error))?;
    let (matched, queue) = (selected.count, &args.queue);
    if selected.follow_ups > 0 {
        return Err(Problem::new(
            format!(
                "queue {queue}: {} of the selected messages are follow-ups; nothing was replayed",
                selected.follow_ups
            ),
            "replay does not repeat the call of a follow-up: stage a new follow-up",
        ));
    }
    eprintln!("{matched} kept {} in queue {queue}", if matched == 1 { "message" } else { "messages" });
    if args.dry_run || matched == 0 {
        print(args, &selected, 0, None)?;
        return Ok(Exit::Success);
    }
    let confirmed = if args.yes { Some(true) } else { confirm::confirm("replayed", stop).await? };
    if confirmed != Some(true) {
        eprintln!("Nothing was replayed.");
        return Ok(if confirmed.is_none() { Exit::Interrupted } else { Exit::Failed });
    }
    let makes_copies = destination.is_some() || args.to_queue.is_some() || args.new_ids;
    let outcome = if makes_copies {
        copies::run(opened, args, &selected, destination.as_ref(), action, stop).await
    } else {
        requeue::run(opened, args, &selection, &selected, action, stop).await
    };
    if let Some(destination) = destination {
        destination.close().await;
    }
    let Outcome { replayed, ended } = outcome;
    let (problem, checkpoint) = match ended {
        End::Done => {
            print(args, &selected, replayed, None)?;
            return Ok(Exit::Success);
        }
        End::Stopped(checkpoint) => (None, checkpoint),
        End::Failed(problem, checkpoint) => (Some(problem), checkpoint),
    };
    print(args, &selected, replayed, checkpoint.as_ref())?;
    let until = timestamp::by(args.until.unwrap_or(selected.fence.at));
    let after = checkpoint.map(|checkpoint| format!(" --after {checkpoint}")).unwrap_or_default();
    eprintln!(
        "{replayed} of {matched} replayed. To continue, run the command again with --until {until}{after}"
    );
    problem.map_or(Ok(Exit::Interrupted), Err)
}

fn print(
    args: &Args,
    selected: &SelectionSummary,
    replayed: u64,
    checkpoint: Option<&Checkpoint>,
) -> Result<(), Problem> {
    let matched = selected.count;
    if args.json {
        return output::json(&Report {
            queue: &args.queue,
            matched,
            replayed,
            dry_run: args.dry_run,
            until: timestamp::by(args.until.unwrap_or(selected.fence.at)),
            after: checkpoint.map(Checkpoint::to_string),
        });
    }
    output::text(&match args.dry_run {
        true => format!("{matched} would be replayed"),
        false => format!("{replayed} replayed"),
    })
}
