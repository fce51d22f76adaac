//! `postrider saga requeue`: requeues abandoned follow-ups, after recording that in the ledger.

use super::{QueueTarget, show::ledger_problem};
use crate::{confirm, exit::Exit, open_database::OpenDatabase, output, problem::Problem, shared::Operator};
use postrider::{
    EventType, FollowUp, MessageId, QueueName, ResolverName,
    follow_up::{FollowUpFilter, FollowUpRow},
    inspect::Action,
    saga::{RequeueError, requeue},
};
use serde::Serialize;
use tokio_util::sync::CancellationToken;

/// How many follow-ups are recorded and requeued in one step.
const CHUNK: usize = 100;
/// How many follow-ups one run considers.
const MOST: usize = 10_000;

const EXAMPLES: &str = "Examples:
  postrider saga requeue ID --why 'new API key' --db shop.db
  postrider saga requeue --all --resolver payments --dry-run --why 'up again' \\
    --db shop.db

The command first appends an event to the ledger of this database, then
requeues. A follow-up that had a payload cannot be requeued: its payload was
erased when it was abandoned. Stage that follow-up again. The exit code is 4
when a follow-up named by id cannot be requeued.";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    source: QueueTarget,

    /// Ids of the follow-ups
    #[arg(required_unless_present = "all")]
    ids: Vec<MessageId>,

    /// Requeue all abandoned follow-ups that the other options select
    #[arg(long, conflicts_with = "ids")]
    all: bool,

    /// Only follow-ups that call this resolver
    #[arg(long, requires = "all")]
    resolver: Option<ResolverName>,

    /// Only follow-ups with this operation
    #[arg(long, requires = "all")]
    operation: Option<EventType>,

    #[command(flatten)]
    doer: Operator,

    /// Print how many would be requeued, and change nothing
    #[arg(long)]
    dry_run: bool,

    /// Skip the confirmation
    #[arg(long)]
    yes: bool,

    /// Print one JSON object to stdout, and nothing else
    #[arg(long)]
    json: bool,
}

/// The outcome as JSON. Its keys are stable.
#[derive(Debug, Default, Serialize)]
struct Report {
    #[serde(skip_serializing_if = "Option::is_none")]
    queue: Option<QueueName>,
    matched: usize,
    requeued: usize,
    /// Follow-ups whose payload was erased.
    payload_erased: Vec<MessageId>,
    /// Ids that are not abandoned follow-ups, or do not exist.
    not_abandoned: Vec<MessageId>,
    dry_run: bool,
}

pub(super) async fn run(args: Args, stop: &CancellationToken) -> Result<Exit, Problem> {
    let action = args.doer.action()?;
    args.source.target.work(async |opened| requeue_follow_ups(opened, &args, &action, stop).await).await
}

async fn requeue_follow_ups(
    opened: &OpenDatabase,
    args: &Args,
    action: &Action,
    stop: &CancellationToken,
) -> Result<Exit, Problem> {
    let queue = &args.source.queue;
    let ids = if args.all { selected(opened, args).await? } else { args.ids.clone() };
    let mut report =
        Report { queue: Some(queue.clone()), matched: ids.len(), dry_run: args.dry_run, ..Report::default() };
    if args.all {
        eprintln!("{} abandoned follow-ups in queue {queue}", ids.len());
        let needs_confirmation = !(args.yes || args.dry_run || ids.is_empty());
        let wanted = if needs_confirmation { confirm::confirm("requeued", stop).await? } else { Some(true) };
        if wanted != Some(true) {
            eprintln!("Nothing was changed.");
            return Ok(if wanted.is_none() { Exit::Interrupted } else { Exit::Failed });
        }
    }
    let mut is_complete = true;
    for chunk in ids.chunks(CHUNK).filter(|_| !args.dry_run) {
        if stop.is_cancelled() {
            is_complete = false;
            break;
        }
        let outcome = requeue(&*opened.backend(), &*opened.ledger(), queue, chunk, action).await;
        let outcome = outcome.map_err(|error| ledger_problem(opened, error))?;
        report.requeued += outcome.requeued.len();
        for (id, why) in outcome.skipped {
            match why {
                RequeueError::Forgotten => report.payload_erased.push(id),
                _ => report.not_abandoned.push(id),
            }
        }
    }
    print(args, &report)?;
    if !is_complete {
        eprintln!(
            "Interrupted: {} of {} requeued. Run the command again to continue.",
            report.requeued, report.matched
        );
        return Ok(Exit::Interrupted);
    }
    let skipped = [&report.payload_erased[..], &report.not_abandoned].concat();
    match skipped.first() {
        Some(first) if !args.all => Err(Problem::new(
            format!(
                "queue {queue}: {} of {} follow-ups could not be requeued",
                skipped.len(),
                report.matched
            ),
            format!("inspect it: postrider saga show --queue {queue} {first}"),
        )
        .with_exit(Exit::NotFound)),
        _ => Ok(Exit::Success),
    }
}

async fn selected(opened: &OpenDatabase, args: &Args) -> Result<Vec<MessageId>, Problem> {
    let rows = opened.backend().follow_up_rows(&args.source.queue, FollowUpFilter::Abandoned, MOST).await;
    let rows = rows.map_err(|error| opened.problem(&error))?;
    if rows.len() == MOST {
        eprintln!(
            "This run covers the {MOST} that were abandoned first; run the command again for the rest."
        );
    }
    let is_selected = |row: &FollowUpRow| {
        let follow_up = FollowUp::read(&row.message).ok();
        let is = |wanted: Option<&str>, of: fn(&FollowUp) -> &str| {
            wanted.is_none_or(|wanted| follow_up.as_ref().is_some_and(|follow_up| of(follow_up) == wanted))
        };
        is(args.resolver.as_ref().map(ResolverName::as_str), |follow_up| follow_up.resolver().as_str())
            && is(args.operation.as_ref().map(EventType::as_str), |follow_up| follow_up.operation().as_str())
    };
    Ok(rows.into_iter().filter(is_selected).map(|row| row.id).collect())
}

fn print(args: &Args, report: &Report) -> Result<(), Problem> {
    if args.json {
        return output::json(report);
    }
    if args.dry_run {
        return output::text(&format!("{} would be requeued", report.matched));
    }
    output::text(&format!("{} requeued", report.requeued))?;
    let list = |ids: &[MessageId]| ids.iter().map(MessageId::to_string).collect::<Vec<_>>().join(", ");
    if !report.payload_erased.is_empty() {
        eprintln!(
            "Not requeued, because the payload was erased; stage them again: {}",
            list(&report.payload_erased)
        );
    }
    if !report.not_abandoned.is_empty() {
        eprintln!(
            "Not requeued, because they do not exist or are not abandoned: {}",
            list(&report.not_abandoned)
        );
    }
    Ok(())
}
