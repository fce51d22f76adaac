//! `postrider gc`: deletes expired data.

use crate::{
    duration,
    exit::Exit,
    open_database::OpenDatabase,
    output,
    problem::Problem,
    progress::Progress,
    shared::{Operator, Target},
    table::Table,
};
use postrider::{ConsumerName, PruneRequest, inspect::Prunable};
use serde::Serialize;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// How many rows one transaction deletes.
const CHUNK: usize = 5000;

const EXAMPLES: &str = "Examples:
  postrider gc --dry-run --db shop.db
  postrider gc --inbox-older-than 14d --db shop.db
  postrider gc --audit-older-than 365d --why 'one year' --vacuum --db shop.db

Kept messages expire when the keep_for of their queue is over; on PostgreSQL by
whole days. A message whose deduplication record was deleted is handled as new
when it is redelivered: keep the records for longer than the redelivery window.
Dead letters stay: postrider dead discard --until 90d removes old ones, and
writes an audit row. Ctrl-C stops between two steps; run again to continue.";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    target: Target,

    /// Also delete deduplication records of the inbox older than this: 14d
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    inbox_older_than: Option<Duration>,

    /// Only the deduplication records of this consumer
    #[arg(long, requires = "inbox_older_than")]
    consumer: Option<ConsumerName>,

    /// Also delete audit rows older than this: 365d; needs --why
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, requires = "why")]
    audit_older_than: Option<Duration>,

    /// Who deletes the audit rows [default: the current user]
    #[arg(long, requires = "audit_older_than")]
    actor: Option<String>,

    /// Why the audit rows are deleted; stored in the audit trail
    #[arg(long, requires = "audit_older_than")]
    why: Option<String>,

    /// Return free space to the file system; SQLite only, blocks writers
    #[arg(long)]
    vacuum: bool,

    /// Print how many rows would be deleted, and delete nothing
    #[arg(long)]
    dry_run: bool,

    /// Print one JSON object to stdout, and nothing else
    #[arg(long)]
    json: bool,
}

/// The deleted rows as JSON. Its keys are stable.
#[derive(Debug, Serialize)]
struct Report {
    /// Messages that were kept after delivery.
    kept: u64,
    /// Deduplication records of the inbox.
    inbox: u64,
    /// Rows of the audit trail.
    audit: u64,
    vacuumed: bool,
    dry_run: bool,
}

pub(crate) async fn run(args: Args, stop: CancellationToken) -> Result<Exit, Problem> {
    args.target.work(async |opened| collect(opened, &args, &stop).await).await
}

async fn collect(opened: &OpenDatabase, args: &Args, stop: &CancellationToken) -> Result<Exit, Problem> {
    if args.vacuum && !opened.can_vacuum() {
        return Err(Problem::new("--vacuum is for SQLite; PostgreSQL has autovacuum", "leave --vacuum out")
            .with_exit(Exit::Usage));
    }
    let doer = args.why.clone().map(|why| Operator::of(args.actor.clone(), why));
    let action = doer.map(|doer| doer.action()).transpose()?;
    let problem = |error| opened.problem(&error);
    let mut request = PruneRequest::new().with_limit(CHUNK);
    if let Some(age) = args.inbox_older_than {
        request = match &args.consumer {
            Some(consumer) => request.with_inbox_of(consumer.clone(), age),
            None => request.with_inbox_older_than(age),
        };
    }
    let operate = opened.backend();
    let count = stop.run_until_cancelled(operate.prunable(&request, args.audit_older_than)).await;
    let Some(before) = count else { return Ok(Exit::Interrupted) };
    let before = before.map_err(problem)?;
    if args.dry_run {
        print(args, before, false)?;
        return Ok(Exit::Success);
    }
    let progress = Progress::of(before.archived + before.inbox + before.audit);
    let mut removed = Prunable::default();
    let mut is_complete = true;
    loop {
        if stop.is_cancelled() {
            is_complete = false;
            break;
        }
        let pruned = opened.backend().prune(&request).await.map_err(problem)?;
        removed.inbox += pruned.inbox;
        progress.advance(pruned.archived + pruned.inbox);
        if !pruned.more {
            break;
        }
    }
    if let (Some(age), Some(action)) = (args.audit_older_than, &action) {
        while removed.audit < before.audit {
            if stop.is_cancelled() {
                is_complete = false;
                break;
            }
            let deleted = operate.prune_audit(age, CHUNK, action).await.map_err(problem)?;
            removed.audit += deleted;
            progress.advance(deleted);
            if deleted == 0 {
                break;
            }
        }
    }
    drop(progress);
    // Whole days are dropped without being counted: the difference was deleted.
    let after = operate.prunable(&request, None).await.map_err(problem)?;
    removed.archived = before.archived.saturating_sub(after.archived);
    if args.vacuum && is_complete {
        opened.vacuum().await.map_err(problem)?;
    }
    print(args, removed, args.vacuum && is_complete)?;
    if !is_complete {
        eprintln!("Interrupted. Run the command again to continue.");
        return Ok(Exit::Interrupted);
    }
    Ok(Exit::Success)
}

fn print(args: &Args, counts: Prunable, vacuumed: bool) -> Result<(), Problem> {
    let Prunable { archived: kept, inbox, audit, .. } = counts;
    if args.json {
        return output::json(&Report { kept, inbox, audit, vacuumed, dry_run: args.dry_run });
    }
    let mut table = Table::new(["ROWS", if args.dry_run { "EXPIRED" } else { "DELETED" }]);
    for (rows, count) in [("kept messages", kept), ("deduplication records", inbox), ("audit rows", audit)] {
        table.push([rows.to_owned(), count.to_string()]);
    }
    output::text(&table.to_string())
}
