//! Counts dead letters by what they have in common.

use crate::{
    exit::Exit,
    opened::Opened,
    problem::Problem,
    shared::{Listing, Target},
    table::Table,
};
use postrider::{
    QueueName, Reason,
    cloudevents::rfc3339,
    inspect::{Entry, ListRequest, Room},
};
use serde::Serialize;
use std::{collections::BTreeMap, time::SystemTime};
use tokio_util::sync::CancellationToken;

/// How many are read at once.
const PAGE: usize = 1000;
/// How many dead letters of a queue are looked at, and how many groups are told apart.
const MOST_LETTERS: usize = 100_000;
const MOST_GROUPS: usize = 1000;

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

/// Dead letters with a queue, a reason and a kind of error in common.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Kind {
    queue: QueueName,
    reason: Option<Reason>,
    error: Option<String>,
}

#[derive(Debug)]
struct Extent {
    count: u64,
    oldest: SystemTime,
    newest: SystemTime,
}

/// A group, for programs. Its keys are a promise.
#[derive(Debug, Serialize)]
struct Group {
    queue: QueueName,
    reason: Option<Reason>,
    /// What the errors begin with, up to the first colon.
    error: Option<String>,
    count: u64,
    oldest: String,
    newest: String,
}

pub(super) async fn run(args: Args, stop: &CancellationToken) -> Result<Exit, Problem> {
    args.target.look(stop, async |opened| groups(opened, &args).await).await
}

async fn groups(opened: &Opened, args: &Args) -> Result<Exit, Problem> {
    let problem = |error| opened.problem(&error);
    let inspect = opened.inspect();
    let queues: Vec<_> = match &args.queue {
        Some(queue) => vec![queue.clone()],
        None => inspect.counts().await.map_err(problem)?.into_keys().collect(),
    };
    let mut groups = BTreeMap::new();
    for queue in queues {
        let mut looked_at = 0;
        let mut request = ListRequest::new(queue.clone(), Room::Dead).with_limit(PAGE);
        loop {
            let page = inspect.list(&request).await.map_err(problem)?;
            looked_at += page.entries.len();
            page.entries.iter().for_each(|entry| count(&mut groups, entry));
            if page.next.is_none() {
                break;
            }
            if looked_at >= MOST_LETTERS {
                eprintln!("{queue} has more than {MOST_LETTERS} dead letters: only the oldest are counted.");
                break;
            }
            request.after = page.next;
        }
    }
    let more = groups.len() > args.listing.limit();
    let mut groups: Vec<Group> = groups.into_iter().map(group).collect();
    groups.sort_by_key(|group| std::cmp::Reverse(group.count));
    groups.truncate(args.listing.limit());
    args.listing.answer(&groups, more, table, "groups")
}

fn count(groups: &mut BTreeMap<Kind, Extent>, entry: &Entry) {
    let error = entry.error.as_deref().map(kind_of);
    let mut kind = Kind { queue: entry.message.queue().clone(), reason: entry.reason, error };
    if groups.len() >= MOST_GROUPS && !groups.contains_key(&kind) {
        kind.error = Some("(other errors)".to_owned());
    }
    let extent = groups.entry(kind).or_insert(Extent { count: 0, oldest: entry.at, newest: entry.at });
    extent.count += 1;
    extent.oldest = extent.oldest.min(entry.at);
    extent.newest = extent.newest.max(entry.at);
}

/// What errors of one kind have in common: what stands before the first colon, in the first line.
fn kind_of(error: &str) -> String {
    let line = error.lines().next().unwrap_or_default();
    line.split(": ").next().unwrap_or_default().chars().take(200).collect()
}

fn group((kind, extent): (Kind, Extent)) -> Group {
    Group {
        queue: kind.queue,
        reason: kind.reason,
        error: kind.error,
        count: extent.count,
        oldest: rfc3339::format(extent.oldest),
        newest: rfc3339::format(extent.newest),
    }
}

fn table(groups: &[Group]) -> String {
    let mut table = Table::new(["COUNT", "QUEUE", "REASON", "OLDEST", "NEWEST", "ERROR"]);
    for group in groups {
        table.push([
            group.count.to_string(),
            group.queue.to_string(),
            super::view::text(group.reason.as_ref()),
            group.oldest.clone(),
            group.newest.clone(),
            group.error.clone().unwrap_or_default(),
        ]);
    }
    table.to_string()
}
