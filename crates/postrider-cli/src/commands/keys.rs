//! `postrider keys`: what is ordered by key, and does not run.

use crate::{
    answer,
    exit::Exit,
    opened::Opened,
    problem::Problem,
    shared::{Doer, Listing, Target},
    table::Table,
};
use postrider::{MessageId, OrderingKey, QueueName, Reason, cloudevents::rfc3339, inspect::BlockedKey};
use serde::Serialize;
use tokio_util::sync::CancellationToken;

const EXAMPLES: &str = "Examples:
  postrider keys blocked --queue orders --db shop.db
  postrider keys release --queue orders order-17 --why 'the address was mended' --db shop.db

A key is blocked while its first message waits for a retry, or for a hand after it failed for good. Released, it runs now.";

#[derive(Debug, clap::Subcommand)]
#[command(after_help = EXAMPLES)]
pub(crate) enum Keys {
    /// List the keys that wait for a retry or for a hand, longest first
    Blocked(BlockedArgs),
    /// Let a blocked key run again now; ends with 4 when it is not blocked
    Release(ReleaseArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct BlockedArgs {
    #[command(flatten)]
    target: Target,

    /// The queue
    #[arg(long)]
    queue: QueueName,

    #[command(flatten)]
    listing: Listing,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ReleaseArgs {
    #[command(flatten)]
    target: Target,

    /// The queue
    #[arg(long)]
    queue: QueueName,

    /// The key
    key: OrderingKey,

    #[command(flatten)]
    doer: Doer,

    /// Print one object of JSON, and nothing else, on stdout
    #[arg(long)]
    json: bool,
}

/// A key, for programs. Its keys are a promise.
#[derive(Debug, Serialize)]
struct Blocked {
    key: OrderingKey,
    head: MessageId,
    due_at: Option<String>,
    reason: Option<Reason>,
    error: Option<String>,
}

impl From<BlockedKey> for Blocked {
    fn from(BlockedKey { key, head, due_at, reason, error }: BlockedKey) -> Self {
        Self { key, head, due_at: due_at.map(rfc3339::format), reason, error }
    }
}

#[derive(Debug, Serialize)]
struct Released {
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

async fn blocked(opened: &Opened, args: &BlockedArgs) -> Result<Exit, Problem> {
    let keys = opened.inspect().blocked_keys(&args.queue, args.listing.wanted()).await;
    let keys = keys.map_err(|error| opened.problem(&error))?.into_iter().map(Blocked::from).collect();
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

async fn release(opened: &Opened, args: &ReleaseArgs) -> Result<Exit, Problem> {
    let ReleaseArgs { queue, key, .. } = args;
    let released = opened.operate().release_key(queue, key, &args.doer.action()?).await;
    if !released.map_err(|error| opened.problem(&error))? {
        return Err(Problem::new(
            format!("key {key} of queue {queue} is not blocked"),
            format!("look with postrider keys blocked --queue {queue}"),
        )
        .ending(Exit::NotFound));
    }
    if args.json {
        answer::json(&Released { queue: queue.clone(), key: key.clone(), released: true })?;
    } else {
        answer::text(&format!("{key} runs again"))?;
    }
    Ok(Exit::Well)
}
