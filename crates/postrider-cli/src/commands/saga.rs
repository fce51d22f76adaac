//! `postrider saga`: how follow-ups are, and what is done about them.

pub(crate) mod case;
mod requeue;
mod show;

use crate::{
    answer, duration,
    exit::Exit,
    opened::Opened,
    problem::Problem,
    shared::{Listing, Target},
    table::Table,
};
use case::Case;
use postrider::{
    QueueName,
    follow_up::{QUEUE, StatusCounts, Which},
};
use serde::Serialize;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

const EXAMPLES: &str = "Examples:
  postrider saga counts --db shop.db                          how many there are in each status
  postrider saga ls --db shop.db                              all that have not succeeded
  postrider saga abandoned --db shop.db                       what was given up and waits for a hand
  postrider saga scheduled --db shop.db                       what is tried again, and when
  postrider saga overdue --older-than 1h --json --db shop.db  what should have succeeded by now
  postrider saga show customer-17 --db shop.db                its follow-ups, and what the ledger says
  postrider saga requeue ID --why 'mended' --db shop.db       try one again, and tell the ledger";

#[derive(Debug, clap::Subcommand)]
#[command(after_help = EXAMPLES)]
pub(crate) enum Saga {
    /// How many follow-ups there are in each status
    Counts(CountsArgs),
    /// All that have not succeeded, the oldest first
    Ls(ListArgs),
    /// What is known of a subject or of one follow-up; ends with 4 when that is nothing
    Show(show::Args),
    /// Try again what was given up, and tell the ledger
    Requeue(requeue::Args),
    /// Those given up, the longest ago first
    Abandoned(ListArgs),
    /// Those not before their time, the nearest first
    Scheduled(ListArgs),
    /// Those that have not succeeded although they were staged long ago, the oldest first
    Overdue(OverdueArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct CountsArgs {
    #[command(flatten)]
    place: Place,

    /// Print one object of JSON, and nothing else, on stdout
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    place: Place,

    #[command(flatten)]
    listing: Listing,
}

#[derive(Debug, clap::Args)]
pub(crate) struct OverdueArgs {
    /// Staged longer ago than this: 30m, 1h
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, default_value = "1h")]
    older_than: Duration,

    #[command(flatten)]
    list: ListArgs,
}

#[derive(Debug, clap::Args)]
struct Place {
    #[command(flatten)]
    target: Target,

    /// The queue
    #[arg(long, default_value = QUEUE)]
    queue: QueueName,
}

/// The counts, for programs. Its keys are a promise.
#[derive(Debug, Serialize)]
struct Counted<'c> {
    queue: &'c QueueName,
    follow_ups: StatusCounts,
}

impl Saga {
    pub(crate) async fn run(self, stop: CancellationToken) -> Result<Exit, Problem> {
        let (args, which) = match self {
            Self::Counts(args) => {
                return args.place.target.look(&stop, async |opened| counts(opened, &args).await).await;
            }
            Self::Show(args) => return show::run(args, &stop).await,
            Self::Requeue(args) => return requeue::run(args, &stop).await,
            Self::Ls(args) => (args, Which::Overdue(Duration::ZERO)),
            Self::Abandoned(args) => (args, Which::Abandoned),
            Self::Scheduled(args) => (args, Which::Scheduled),
            Self::Overdue(OverdueArgs { older_than, list }) => (list, Which::Overdue(older_than)),
        };
        args.place.target.look(&stop, async |opened| list(opened, &args, which).await).await
    }
}

async fn counts(opened: &Opened, args: &CountsArgs) -> Result<Exit, Problem> {
    let queue = &args.place.queue;
    let counts = opened.follow_ups().status_counts(queue).await.map_err(|error| opened.problem(&error))?;
    if args.json {
        answer::json(&Counted { queue, follow_ups: counts })?;
    } else {
        let mut table = Table::new(["STATUS", "FOLLOW-UPS"]);
        counts.iter().for_each(|(status, count)| table.push([status.to_string(), count.to_string()]));
        answer::text(&table.to_string())?;
    }
    Ok(Exit::Well)
}

async fn list(opened: &Opened, args: &ListArgs, which: Which) -> Result<Exit, Problem> {
    let dockets = opened.follow_ups().dockets(&args.place.queue, which, args.listing.wanted()).await;
    let cases = dockets.map_err(|error| opened.problem(&error))?.into_iter().map(Case::from).collect();
    args.listing.answer(cases, case::table, "follow_ups")
}
