//! `postrider saga`: the status of follow-ups, and their repair.

pub(crate) mod follow_up;
mod requeue;
mod show;

use crate::{
    duration,
    exit::Exit,
    open_database::OpenDatabase,
    output,
    problem::Problem,
    shared::{Listing, Target},
    table::Table,
};
use follow_up::FollowUpView;
use postrider::{
    QueueName,
    follow_up::{FollowUpFilter, QUEUE, StatusCounts},
};
use serde::Serialize;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

const EXAMPLES: &str = "Examples:
  postrider saga counts --db shop.db            how many are in each status
  postrider saga ls --db shop.db                all that have not succeeded
  postrider saga abandoned --db shop.db         those that need attention
  postrider saga scheduled --db shop.db         those that wait, and until when
  postrider saga overdue --older-than 1h --db shop.db
  postrider saga show customer-17 --db shop.db  a subject, with its ledger
  postrider saga requeue ID --why 'provider fixed' --db shop.db";

#[derive(Debug, clap::Subcommand)]
#[command(after_help = EXAMPLES)]
pub(crate) enum Saga {
    /// Count the follow-ups in each status
    Counts(CountsArgs),
    /// List the follow-ups that have not succeeded, oldest first
    Ls(ListArgs),
    /// Show the follow-ups and the ledger of a subject, or one follow-up
    Show(show::Args),
    /// Requeue abandoned follow-ups, and record it in the ledger
    #[command(override_usage = "postrider saga requeue [OPTIONS] --db <PATH|URL> --why <WHY> <--all|IDS>")]
    Requeue(requeue::Args),
    /// List the abandoned follow-ups, longest ago first
    Abandoned(ListArgs),
    /// List the follow-ups that are not due yet, soonest first
    Scheduled(ListArgs),
    /// List follow-ups that were staged long ago and have not succeeded
    Overdue(OverdueArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct CountsArgs {
    #[command(flatten)]
    source: QueueTarget,

    /// Print one JSON object to stdout, and nothing else
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    source: QueueTarget,

    #[command(flatten)]
    listing: Listing,
}

#[derive(Debug, clap::Args)]
pub(crate) struct OverdueArgs {
    /// Minimum time since staging: 30m, 1h
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, default_value = "1h")]
    older_than: Duration,

    #[command(flatten)]
    list: ListArgs,
}

#[derive(Debug, clap::Args)]
struct QueueTarget {
    #[command(flatten)]
    target: Target,

    /// Queue of the follow-ups
    #[arg(long, default_value = QUEUE)]
    queue: QueueName,
}

/// The counts as JSON. Its keys are stable.
#[derive(Debug, Serialize)]
struct CountsReport<'c> {
    queue: &'c QueueName,
    follow_ups: StatusCounts,
}

impl Saga {
    pub(crate) async fn run(self, stop: CancellationToken) -> Result<Exit, Problem> {
        let (args, filter) = match self {
            Self::Counts(args) => {
                return args.source.target.look(&stop, async |opened| counts(opened, &args).await).await;
            }
            Self::Show(args) => return show::run(args, &stop).await,
            Self::Requeue(args) => return requeue::run(args, &stop).await,
            Self::Ls(args) => (args, FollowUpFilter::Overdue(Duration::ZERO)),
            Self::Abandoned(args) => (args, FollowUpFilter::Abandoned),
            Self::Scheduled(args) => (args, FollowUpFilter::Scheduled),
            Self::Overdue(OverdueArgs { older_than, list }) => (list, FollowUpFilter::Overdue(older_than)),
        };
        args.source.target.look(&stop, async |opened| list(opened, &args, filter).await).await
    }
}

async fn counts(opened: &OpenDatabase, args: &CountsArgs) -> Result<Exit, Problem> {
    let queue = &args.source.queue;
    let counts = opened.backend().status_counts(queue).await.map_err(|error| opened.problem(&error))?;
    if args.json {
        output::json(&CountsReport { queue, follow_ups: counts })?;
    } else {
        let mut table = Table::new(["STATUS", "FOLLOW-UPS"]);
        counts.iter().for_each(|(status, count)| table.push([status.to_string(), count.to_string()]));
        output::text(&table.to_string())?;
    }
    Ok(Exit::Success)
}

async fn list(opened: &OpenDatabase, args: &ListArgs, filter: FollowUpFilter) -> Result<Exit, Problem> {
    let rows = opened.backend().follow_up_rows(&args.source.queue, filter, args.listing.wanted()).await;
    let views = rows.map_err(|error| opened.problem(&error))?.into_iter().map(FollowUpView::from).collect();
    args.listing.answer(views, follow_up::table, "follow_ups")
}
