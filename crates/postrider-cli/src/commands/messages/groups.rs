//! Counts dead letters by queue, reason and kind of error.

use super::view::text;
use crate::{
    exit::Exit,
    open_database::OpenDatabase,
    problem::Problem,
    shared::{Listing, Target},
    table::Table,
};
use postrider::{QueueName, Reason, cloudevents::rfc3339, inspect::DeadGroup};
use serde::Serialize;
use tokio_util::sync::CancellationToken;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    target: Target,

    /// Only this queue
    #[arg(long)]
    queue: Option<QueueName>,

    #[command(flatten)]
    listing: Listing,
}

/// A group as JSON. Its keys are stable.
#[derive(Debug, Serialize)]
struct GroupView {
    queue: QueueName,
    reason: Option<Reason>,
    /// The beginning of the errors, up to the first colon.
    error: Option<String>,
    count: u64,
    oldest: String,
    newest: String,
}

impl From<DeadGroup> for GroupView {
    fn from(group: DeadGroup) -> Self {
        let DeadGroup { queue, reason, error, count, oldest, newest } = group;
        Self { queue, reason, error, count, oldest: rfc3339::format(oldest), newest: rfc3339::format(newest) }
    }
}

pub(super) async fn run(args: Args, stop: &CancellationToken) -> Result<Exit, Problem> {
    args.target.look(stop, async |opened| groups(opened, &args).await).await
}

async fn groups(opened: &OpenDatabase, args: &Args) -> Result<Exit, Problem> {
    let groups = opened.backend().dead_groups(args.queue.as_ref(), args.listing.wanted()).await;
    let groups = groups.map_err(|error| opened.problem(&error))?.into_iter().map(GroupView::from).collect();
    args.listing.answer(groups, table, "groups")
}

fn table(groups: &[GroupView]) -> String {
    let mut table = Table::new(["COUNT", "QUEUE", "REASON", "OLDEST", "NEWEST", "ERROR"]);
    for group in groups {
        table.push([
            group.count.to_string(),
            group.queue.to_string(),
            text(group.reason.as_ref()),
            group.oldest.clone(),
            group.newest.clone(),
            text(group.error.as_ref()),
        ]);
    }
    table.to_string()
}
