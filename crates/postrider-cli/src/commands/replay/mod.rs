//! `postrider replay`: what a queue keeps is delivered once more.
//!
//! Without anything else it goes back into its own queue, under its own identity: out of the archive and into the line, as a dead letter is
//! put back. A consumer that has seen an identity drops it, so this fills gaps. To build something anew from the events, give them new
//! identities, or another queue with a consumer of its own.

mod copies;
mod mark;
mod place;
mod to;

use crate::{
    answer, asking,
    exit::Exit,
    moment,
    opened::Opened,
    pace::Rate,
    problem::Problem,
    shared::{Doer, Target},
};
use mark::Mark;
use postrider::{
    EventType, OrderingKey, QueueName, Template,
    inspect::{Action, Room, Selected, Selection},
};
use serde::Serialize;
use std::{path::PathBuf, time::SystemTime};
use tokio_util::sync::CancellationToken;

const EXAMPLES: &str = "Examples:
  postrider replay --queue orders --since 2h --dry-run --why 'gap' --db shop.db          how many there are
  postrider replay --queue orders --since 2h --rate 100/s --yes --why 'gap' --db shop.db
  postrider replay --queue orders --to-queue projections --yes --why 'new index' --db shop.db
  postrider replay --queue orders --new-ids --key order-17 --yes --why 'rebuild' --db shop.db
  postrider replay --queue orders --to events --since 2026-10-14T12:00:00Z --yes --why 'lost topic' --db shop.db

Only what a queue keeps can be replayed: keep_for says how long. Without --to-queue, --to and --new-ids the messages
themselves go back into their queue, under their own ids: a consumer that has admitted an id drops it, which fills gaps and
builds nothing anew. With --new-ids they are new messages, with the old id in the header replay-of.

Ctrl-C stops it between two steps, and it says how to go on.";

/// The header in which a copy with an identity of its own carries that of the original.
const ORIGINAL: &str = "replay-of";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    target: Target,

    /// The queue that keeps them
    #[arg(long)]
    queue: QueueName,

    /// Only those delivered since then: 2026-10-14T12:00:00Z, or 2h for two hours ago
    #[arg(long, value_name = "MOMENT", value_parser = moment::parse)]
    since: Option<SystemTime>,

    /// Only those delivered by then
    #[arg(long, value_name = "MOMENT", value_parser = moment::parse)]
    until: Option<SystemTime>,

    /// Only this type
    #[arg(long = "type", value_name = "TYPE")]
    event_type: Option<EventType>,

    /// Only this key
    #[arg(long)]
    key: Option<OrderingKey>,

    /// Copy them into this queue instead, under their own ids
    #[arg(long, value_name = "QUEUE", conflicts_with = "to")]
    to_queue: Option<QueueName>,

    /// Send them to this destination of postrider.toml instead, without any queue
    #[arg(long, value_name = "DESTINATION")]
    to: Option<String>,

    /// Where there, if no route of the file says so: orders.{type}
    #[arg(long, value_name = "ADDRESS", requires = "to", value_parser = address)]
    address: Option<Template>,

    /// The configuration with the destination [default: $POSTRIDER_CONFIG, or postrider.toml in this folder]
    #[arg(long, value_name = "FILE", requires = "to")]
    config: Option<PathBuf>,

    /// Under new ids, with the old one in the header replay-of
    #[arg(long, conflicts_with = "to")]
    new_ids: bool,

    /// No faster than this: 100/s, 6000/m
    #[arg(long, value_name = "RATE")]
    rate: Option<Rate>,

    /// Go on where it was interrupted, with the mark that it printed then
    #[arg(long, value_name = "MARK")]
    after: Option<Mark>,

    #[command(flatten)]
    doer: Doer,

    /// Say how many there are, and change nothing
    #[arg(long)]
    dry_run: bool,

    /// Do not ask
    #[arg(long)]
    yes: bool,

    /// Print one object of JSON, and nothing else, on stdout
    #[arg(long)]
    json: bool,
}

fn address(text: &str) -> Result<Template, postrider::Invalid> {
    Template::parse(text)
}

/// What was done, for programs. Its keys are a promise.
#[derive(Debug, Serialize)]
struct Report<'r> {
    queue: &'r QueueName,
    /// How many were selected.
    matched: u64,
    /// How many were replayed.
    replayed: u64,
    dry_run: bool,
    /// When they were counted: what was delivered since is left alone.
    until: String,
    /// Where to go on, if it did not come to the end.
    after: Option<String>,
}

/// How far it came.
#[derive(Debug)]
struct Course {
    replayed: u64,
    ended: End,
}

#[derive(Debug)]
enum End {
    Done,
    /// Somebody stopped it, here.
    Stopped(Option<Mark>),
    /// Something went wrong, and it can go on from here.
    Failed(Problem, Option<Mark>),
}

pub(crate) async fn run(args: Args, stop: CancellationToken) -> Result<Exit, Problem> {
    let action = args.doer.action()?;
    args.target.work(async |opened| replay(opened, &args, &action, &stop).await).await
}

async fn replay(
    opened: &Opened,
    args: &Args,
    action: &Action,
    stop: &CancellationToken,
) -> Result<Exit, Problem> {
    let place = args.to.as_ref().map(|to| to::Place::open(args, to)).transpose()?;
    let selection = Selection {
        key: args.key.clone(),
        event_type: args.event_type.clone(),
        since: args.since.max(args.after.as_ref().map(Mark::at)),
        until: args.until,
        ..Selection::new(args.queue.clone(), Room::Archive)
    };
    let counting = stop.run_until_cancelled(opened.inspect().tally(&selection)).await;
    let Some(selected) = counting else { return Ok(Exit::Interrupted) };
    let selected = selected.map_err(|error| opened.problem(&error))?;
    let (matched, queue) = (selected.count, &args.queue);
    if selected.follow_ups > 0 {
        return Err(Problem::new(
            format!("queue {queue}: {} of them are follow-ups; nothing was replayed", selected.follow_ups),
            "a call that was made is not made again by replaying it: stage a follow-up anew",
        ));
    }
    eprintln!("{matched} kept {} in queue {queue}", if matched == 1 { "message" } else { "messages" });
    if args.dry_run || matched == 0 {
        tell(args, &selected, 0, None)?;
        return Ok(Exit::Well);
    }
    let wanted = if args.yes { Some(true) } else { asking::is_wanted("replayed", stop).await? };
    if wanted != Some(true) {
        eprintln!("Nothing was replayed.");
        return Ok(if wanted.is_none() { Exit::Interrupted } else { Exit::Failed });
    }
    let is_copied = place.is_some() || args.to_queue.is_some() || args.new_ids;
    let course = if is_copied {
        copies::run(opened, args, &selected, place.as_ref(), action, stop).await
    } else {
        place::run(opened, args, &selection, &selected, action, stop).await
    };
    if let Some(place) = place {
        place.close().await;
    }
    let Course { replayed, ended } = course;
    let (problem, mark) = match ended {
        End::Done => {
            tell(args, &selected, replayed, None)?;
            return Ok(Exit::Well);
        }
        End::Stopped(mark) => (None, mark),
        End::Failed(problem, mark) => (Some(problem), mark),
    };
    tell(args, &selected, replayed, mark.as_ref())?;
    let until = moment::by(args.until.unwrap_or(selected.fence.at));
    let after = mark.map(|mark| format!(" --after {mark}")).unwrap_or_default();
    eprintln!("{replayed} of {matched} were replayed. Run it again with --until {until}{after} to go on.");
    problem.map_or(Ok(Exit::Interrupted), Err)
}

fn tell(args: &Args, selected: &Selected, replayed: u64, mark: Option<&Mark>) -> Result<(), Problem> {
    let matched = selected.count;
    if args.json {
        return answer::json(&Report {
            queue: &args.queue,
            matched,
            replayed,
            dry_run: args.dry_run,
            until: moment::by(args.until.unwrap_or(selected.fence.at)),
            after: mark.map(Mark::to_string),
        });
    }
    answer::text(&match args.dry_run {
        true => format!("{matched} would be replayed"),
        false => format!("{replayed} replayed"),
    })
}
