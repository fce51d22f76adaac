//! `postrider gc`: removes what may go now.

use crate::{
    answer, duration,
    exit::Exit,
    opened::Opened,
    problem::Problem,
    progress::Progress,
    shared::{Doer, Target},
    table::Table,
};
use postrider::{ConsumerName, PruneRequest, inspect::Prunable};
use serde::Serialize;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// How many rows go in one transaction.
const CHUNK: usize = 5000;

const EXAMPLES: &str = "Examples:
  postrider gc --dry-run --db shop.db                               what may go now
  postrider gc --inbox-older-than 14d --db shop.db                  kept messages, and marks of the inbox
  postrider gc --audit-older-than 365d --why 'kept for a year' --vacuum --db shop.db

Kept messages go when their queue's keep_for is over; on PostgreSQL by whole days. A message whose mark is gone is new when it
arrives again: keep marks for longer than anybody may send it again. Dead letters stay: postrider dead discard --until 90d
removes old ones, and writes that down. Ctrl-C stops it between two steps; run again, it goes on.";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    target: Target,

    /// Also marks of the inbox that were made longer ago than this: 14d
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    inbox_older_than: Option<Duration>,

    /// Only the marks of this consumer
    #[arg(long, requires = "inbox_older_than")]
    consumer: Option<ConsumerName>,

    /// Also what operators did longer ago than this: 365d; needs --why
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, requires = "why")]
    audit_older_than: Option<Duration>,

    /// Who removes what operators did; the user who is logged in unless given
    #[arg(long, requires = "audit_older_than")]
    actor: Option<String>,

    /// Why that is removed; it is written down
    #[arg(long, requires = "audit_older_than")]
    why: Option<String>,

    /// Give the room back to the file system; SQLite only, writers wait
    #[arg(long)]
    vacuum: bool,

    /// Say how much may go, and remove nothing
    #[arg(long)]
    dry_run: bool,

    /// Print one object of JSON, and nothing else, on stdout
    #[arg(long)]
    json: bool,
}

/// What was removed, for programs. Its keys are a promise.
#[derive(Debug, Serialize)]
struct Report {
    /// Messages that were kept after success.
    kept: u64,
    /// Marks of the inbox.
    inbox: u64,
    /// Rows of what operators did.
    audit: u64,
    vacuumed: bool,
    dry_run: bool,
}

pub(crate) async fn run(args: Args, stop: CancellationToken) -> Result<Exit, Problem> {
    args.target.work(async |opened| collect(opened, &args, &stop).await).await
}

async fn collect(opened: &Opened, args: &Args, stop: &CancellationToken) -> Result<Exit, Problem> {
    if args.vacuum && !opened.can_vacuum() {
        return Err(Problem::new("PostgreSQL gives room back by itself: autovacuum", "leave --vacuum out")
            .ending(Exit::Misused));
    }
    let doer = args.why.clone().map(|why| Doer::of(args.actor.clone(), why));
    let action = doer.map(|doer| doer.action()).transpose()?;
    let problem = |error| opened.problem(&error);
    let mut request = PruneRequest::new().with_limit(CHUNK);
    if let Some(age) = args.inbox_older_than {
        request = match &args.consumer {
            Some(consumer) => request.with_inbox_of(consumer.clone(), age),
            None => request.with_inbox_older_than(age),
        };
    }
    let operate = opened.operate();
    let counting = stop.run_until_cancelled(operate.prunable(&request, args.audit_older_than)).await;
    let Some(before) = counting else { return Ok(Exit::Interrupted) };
    let before = before.map_err(problem)?;
    if args.dry_run {
        tell(args, before, false)?;
        return Ok(Exit::Well);
    }
    let progress = Progress::of(before.archived + before.inbox + before.audit);
    let mut removed = Prunable::default();
    let mut is_whole = true;
    loop {
        if stop.is_cancelled() {
            is_whole = false;
            break;
        }
        let pruned = opened.store().prune(&request).await.map_err(problem)?;
        removed.inbox += pruned.inbox;
        progress.advance(pruned.archived + pruned.inbox);
        if !pruned.more {
            break;
        }
    }
    if let (Some(age), Some(action)) = (args.audit_older_than, &action) {
        while removed.audit < before.audit {
            if stop.is_cancelled() {
                is_whole = false;
                break;
            }
            let gone = operate.prune_audit(age, CHUNK, action).await.map_err(problem)?;
            removed.audit += gone;
            progress.advance(gone);
            if gone == 0 {
                break;
            }
        }
    }
    drop(progress);
    // Whole days go without being counted: what is missing now is gone.
    let after = operate.prunable(&request, None).await.map_err(problem)?;
    removed.archived = before.archived.saturating_sub(after.archived);
    if args.vacuum && is_whole {
        opened.vacuum().await.map_err(problem)?;
    }
    tell(args, removed, args.vacuum && is_whole)?;
    if !is_whole {
        eprintln!("Interrupted. Run it again to go on.");
        return Ok(Exit::Interrupted);
    }
    Ok(Exit::Well)
}

fn tell(args: &Args, counts: Prunable, vacuumed: bool) -> Result<(), Problem> {
    let Prunable { archived: kept, inbox, audit, .. } = counts;
    if args.json {
        return answer::json(&Report { kept, inbox, audit, vacuumed, dry_run: args.dry_run });
    }
    let mut table = Table::new(["WHAT", if args.dry_run { "MAY GO" } else { "REMOVED" }]);
    for (what, count) in [("kept messages", kept), ("marks of the inbox", inbox), ("audit rows", audit)] {
        table.push([what.to_owned(), count.to_string()]);
    }
    answer::text(&table.to_string())
}
