//! `postrider saga requeue`: follow-ups that were given up are tried again, and the ledger is told first.

use super::{Place, show::unread};
use crate::{answer, asking, exit::Exit, opened::Opened, problem::Problem, shared::Doer};
use postrider::{
    EventType, FollowUp, MessageId, QueueName, ResolverName,
    follow_up::{Docket, Which},
    inspect::Action,
    saga::{Unrequeued, requeue},
};
use serde::Serialize;
use tokio_util::sync::CancellationToken;

/// How many are told and put back at once.
const CHUNK: usize = 100;
/// How many are looked at in one run.
const MOST: usize = 10_000;

const EXAMPLES: &str = "Examples:
  postrider saga requeue ID --why 'the provider has given us a new key' --db shop.db
  postrider saga requeue --all --resolver payments --dry-run --why 'it is back' --db shop.db

The ledger of this database is told before they are put back. What had a payload cannot be: it was forgotten when the
follow-up was given up, so stage that one anew. It ends with 4 when one that is named cannot be put back.";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    place: Place,

    /// The follow-ups
    #[arg(required_unless_present = "all")]
    ids: Vec<MessageId>,

    /// All that were given up, or those of them that the options select
    #[arg(long, conflicts_with = "ids")]
    all: bool,

    /// Only those that call this resolver
    #[arg(long, requires = "all")]
    resolver: Option<ResolverName>,

    /// Only those of this operation
    #[arg(long, requires = "all")]
    operation: Option<EventType>,

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

/// What was done, for programs. Its keys are a promise.
#[derive(Debug, Default, Serialize)]
struct Report {
    #[serde(skip_serializing_if = "Option::is_none")]
    queue: Option<QueueName>,
    matched: usize,
    requeued: usize,
    /// Had a payload, which is forgotten.
    forgotten: Vec<MessageId>,
    /// Are not given up, or not there.
    not_abandoned: Vec<MessageId>,
    dry_run: bool,
}

pub(super) async fn run(args: Args, stop: &CancellationToken) -> Result<Exit, Problem> {
    let action = args.doer.action()?;
    args.place.target.work(async |opened| put_back(opened, &args, &action, stop).await).await
}

async fn put_back(
    opened: &Opened,
    args: &Args,
    action: &Action,
    stop: &CancellationToken,
) -> Result<Exit, Problem> {
    let queue = &args.place.queue;
    let ids = if args.all { selected(opened, args).await? } else { args.ids.clone() };
    let mut report =
        Report { queue: Some(queue.clone()), matched: ids.len(), dry_run: args.dry_run, ..Report::default() };
    if args.all {
        eprintln!("{} follow-ups in queue {queue} were given up", ids.len());
        let is_asked = !(args.yes || args.dry_run || ids.is_empty());
        let wanted = if is_asked { asking::is_wanted("put back", stop).await? } else { Some(true) };
        if wanted != Some(true) {
            eprintln!("Nothing was changed.");
            return Ok(if wanted.is_none() { Exit::Interrupted } else { Exit::Failed });
        }
    }
    let mut is_whole = true;
    for chunk in ids.chunks(CHUNK).filter(|_| !args.dry_run) {
        if stop.is_cancelled() {
            is_whole = false;
            break;
        }
        let answer = requeue(&*opened.operate(), &*opened.ledger(), queue, chunk, action).await;
        let answer = answer.map_err(|error| unread(opened, error))?;
        report.requeued += answer.requeued.len();
        for (id, why) in answer.skipped {
            match why {
                Unrequeued::Forgotten => report.forgotten.push(id),
                _ => report.not_abandoned.push(id),
            }
        }
    }
    tell(args, &report)?;
    if !is_whole {
        eprintln!(
            "Interrupted: {} of {} were put back. Run it again to go on.",
            report.requeued, report.matched
        );
        return Ok(Exit::Interrupted);
    }
    let left = [&report.forgotten[..], &report.not_abandoned].concat();
    match left.first() {
        Some(first) if !args.all => Err(Problem::new(
            format!("queue {queue}: {} of {} could not be put back", left.len(), report.matched),
            format!("look with postrider saga show --queue {queue} {first}"),
        )
        .ending(Exit::NotFound)),
        _ => Ok(Exit::Well),
    }
}

async fn selected(opened: &Opened, args: &Args) -> Result<Vec<MessageId>, Problem> {
    let dockets = opened.follow_ups().dockets(&args.place.queue, Which::Abandoned, MOST).await;
    let dockets = dockets.map_err(|error| opened.problem(&error))?;
    if dockets.len() == MOST {
        eprintln!("Only the {MOST} that were given up first are looked at: run it again for the others.");
    }
    let is_meant = |docket: &Docket| {
        let follow_up = FollowUp::read(&docket.message).ok();
        let is = |wanted: Option<&str>, of: fn(&FollowUp) -> &str| {
            wanted.is_none_or(|wanted| follow_up.as_ref().is_some_and(|follow_up| of(follow_up) == wanted))
        };
        is(args.resolver.as_ref().map(ResolverName::as_str), |follow_up| follow_up.resolver().as_str())
            && is(args.operation.as_ref().map(EventType::as_str), |follow_up| follow_up.operation().as_str())
    };
    Ok(dockets.into_iter().filter(is_meant).map(|docket| docket.id).collect())
}

fn tell(args: &Args, report: &Report) -> Result<(), Problem> {
    if args.json {
        return answer::json(report);
    }
    if args.dry_run {
        return answer::text(&format!("{} would be put back", report.matched));
    }
    answer::text(&format!("{} put back", report.requeued))?;
    let list = |ids: &[MessageId]| ids.iter().map(MessageId::to_string).collect::<Vec<_>>().join(", ");
    if !report.forgotten.is_empty() {
        eprintln!("Their payload is forgotten, stage them anew: {}", list(&report.forgotten));
    }
    if !report.not_abandoned.is_empty() {
        eprintln!("Not there, or not given up: {}", list(&report.not_abandoned));
    }
    Ok(())
}
