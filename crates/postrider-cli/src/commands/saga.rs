//! `postrider saga`: how follow-ups are.

use crate::{
    answer, duration,
    exit::Exit,
    opened::Opened,
    problem::Problem,
    shared::{Listing, Target},
    table::Table,
};
use postrider::{
    FollowUp, MessageId, QueueName,
    cloudevents::rfc3339,
    follow_up::{Docket, QUEUE, Status, StatusCounts, Which},
};
use serde::Serialize;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

const EXAMPLES: &str = "Examples:
  postrider saga counts --db shop.db                          how many there are in each status
  postrider saga abandoned --db shop.db                       what was given up and waits for a hand
  postrider saga overdue --older-than 1h --json --db shop.db  what should have succeeded by now

What was given up is a dead letter: postrider dead requeue --queue follow-ups puts it back.";

#[derive(Debug, clap::Subcommand)]
#[command(after_help = EXAMPLES)]
pub(crate) enum Saga {
    /// How many follow-ups there are in each status
    Counts(CountsArgs),
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

/// A follow-up, for programs. Its keys are a promise.
#[derive(Debug, Serialize)]
struct Case {
    id: MessageId,
    status: Status,
    /// What is called; nothing of a message that is no follow-up.
    resolver: Option<String>,
    operation: Option<String>,
    tenant: Option<String>,
    subject: Option<String>,
    staged_at: String,
    /// When it is due, or was given up.
    at: String,
    attempts: u32,
    error: Option<String>,
}

impl From<Docket> for Case {
    fn from(docket: Docket) -> Self {
        let follow_up = FollowUp::read(&docket.message).ok();
        let follow_up = follow_up.as_ref();
        Self {
            id: docket.id,
            status: docket.status,
            resolver: follow_up.map(|follow_up| follow_up.resolver().to_string()),
            operation: follow_up.map(|follow_up| follow_up.operation().to_string()),
            tenant: follow_up.and_then(FollowUp::tenant).map(ToString::to_string),
            subject: follow_up.map(|follow_up| follow_up.subject().to_string()),
            staged_at: rfc3339::format(docket.staged_at),
            at: rfc3339::format(docket.at),
            attempts: docket.deliveries,
            error: docket.error,
        }
    }
}

impl Saga {
    pub(crate) async fn run(self, stop: CancellationToken) -> Result<Exit, Problem> {
        let (args, which) = match self {
            Self::Counts(args) => {
                return args.place.target.look(&stop, async |opened| counts(opened, &args).await).await;
            }
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
    let limit = args.listing.limit();
    let dockets = opened.follow_ups().dockets(&args.place.queue, which, limit.saturating_add(1)).await;
    let mut cases: Vec<_> =
        dockets.map_err(|error| opened.problem(&error))?.into_iter().map(Case::from).collect();
    let more = cases.len() > limit;
    cases.truncate(limit);
    args.listing.answer(&cases, more, table, "follow_ups")
}

fn table(cases: &[Case]) -> String {
    let mut table = Table::new([
        "ID",
        "STATUS",
        "RESOLVER",
        "OPERATION",
        "SUBJECT",
        "STAGED AT",
        "AT",
        "ATTEMPTS",
        "ERROR",
    ]);
    for case in cases {
        let text = |value: &Option<String>| value.clone().unwrap_or_default();
        table.push([
            case.id.to_string(),
            case.status.to_string(),
            text(&case.resolver),
            text(&case.operation),
            text(&case.subject),
            case.staged_at.clone(),
            case.at.clone(),
            case.attempts.to_string(),
            text(&case.error),
        ]);
    }
    table.to_string()
}
