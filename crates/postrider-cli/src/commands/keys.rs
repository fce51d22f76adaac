//! `postrider keys`: ordering keys that are blocked.

use crate::{
    exit::Exit,
    open_database::OpenDatabase,
    output,
    problem::Problem,
    shared::{Listing, Operator, Target},
    table::Table,
};
use postrider::{MessageId, OrderingKey, QueueName, Reason, cloudevents::rfc3339, inspect::BlockedKey};
use serde::Serialize;
use tokio_util::sync::CancellationToken;

const EXAMPLES: &str = "Examples:
  postrider keys blocked --queue orders --db shop.db
  postrider keys release --queue orders order-17 --why 'address fixed' \\
    --db shop.db

A key is blocked while its first message waits for a retry, or is parked after
it failed permanently. A released key runs at once. The exit code of release is
4 when the key is not blocked.";

#[derive(Debug, clap::Subcommand)]
#[command(after_help = EXAMPLES)]
pub(crate) enum Keys {
    /// List keys that wait for a retry or are parked, longest first
    Blocked(BlockedArgs),
    /// Release a blocked key, so that it runs at once
    #[command(
        override_usage = "postrider keys release [OPTIONS] --db <PATH|URL> --queue <QUEUE>\n                 --why <WHY> <KEY>"
    )]
    Release(ReleaseArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct BlockedArgs {
    #[command(flatten)]
    target: Target,

    /// Queue
    #[arg(long)]
    queue: QueueName,

    #[command(flatten)]
    listing: Listing,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ReleaseArgs {
    #[command(flatten)]
    target: Target,

    /// Queue
    #[arg(long)]
    queue: QueueName,

    /// Ordering key
    key: OrderingKey,

    #[command(flatten)]
    doer: Operator,

    /// Print one JSON object to stdout, and nothing else
    #[arg(long)]
    json: bool,
}

/// A blocked key as JSON. Its keys are stable.
#[derive(Debug, Serialize)]
struct BlockedKeyView {
    key: OrderingKey,
    head: MessageId,
    due_at: Option<String>,
    reason: Option<Reason>,
    error: Option<String>,
}

impl From<BlockedKey> for BlockedKeyView {
    fn from(BlockedKey { key, head, due_at, reason, error }: BlockedKey) -> Self {
        Self { key, head, due_at: due_at.map(rfc3339::format), reason, error }
    }
}

#[derive(Debug, Serialize)]
struct ReleaseReport {
    queue: QueueName,
    key: OrderingKey,
    released: bool,
}

impl Keys {
    pub(crate) async fn run(self, stop: CancellationToken) -> Result<Exit, Problem> {
        match self {
            Self::Blocked(args) => args.target.look(&stop, async |opened| blocked(opened, &args).await).await,
            Self::Release(args) => args.target.work(async |opened| release(opened, &args).await).await,
        }
    }
}

async fn blocked(opened: &OpenDatabase, args: &BlockedArgs) -> Result<Exit, Problem> {
    let keys = opened.backend().blocked_keys(&args.queue, args.listing.wanted()).await;
    let keys = keys.map_err(|error| opened.problem(&error))?.into_iter().map(BlockedKeyView::from).collect();
    args.listing.answer(
        keys,
        |keys| {
            let mut table = Table::new(["KEY", "HEAD", "RUNS AGAIN", "REASON", "ERROR"]);
            for key in keys {
                table.push([
                    key.key.to_string(),
                    key.head.to_string(),
                    key.due_at.clone().unwrap_or_else(|| "when released".to_owned()),
                    key.reason.map(|reason| reason.to_string()).unwrap_or_default(),
                    key.error.clone().unwrap_or_default(),
                ]);
            }
            table.to_string()
        },
        "keys",
    )
}

async fn release(opened: &OpenDatabase, args: &ReleaseArgs) -> Result<Exit, Problem> {
    let ReleaseArgs { queue, key, .. } = args;
    let released = opened.backend().release_key(queue, key, &args.doer.action()?).await;
    if !released.map_err(|error| opened.problem(&error))? {
        return Err(Problem::new(
            format!("key {key} of queue {queue} is not blocked"),
            format!("list blocked keys: postrider keys blocked --queue {queue}"),
        )
        .with_exit(Exit::NotFound));
    }
    if args.json {
        output::json(&ReleaseReport { queue: queue.clone(), key: key.clone(), released: true })?;
    } else {
        output::text(&format!("released key {key}"))?;
    }
    Ok(Exit::Success)
}
