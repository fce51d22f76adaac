//! `postrider audit ls`: what operators did.

use crate::{
    exit::Exit,
    opened::Opened,
    problem::Problem,
    shared::{Listing, Target},
    table::Table,
};
use postrider::{
    DestinationName, MessageId, OrderingKey, QueueName,
    cloudevents::rfc3339,
    inspect::{Action, AuditRow},
};
use serde::Serialize;
use tokio_util::sync::CancellationToken;

const EXAMPLES: &str = "Examples:
  postrider audit ls --db shop.db                          the last hundred, newest first
  postrider audit ls --db shop.db --limit 10000 --jsonl    one object a line, with every message";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    target: Target,

    #[command(flatten)]
    listing: Listing,
}

/// What somebody did, for programs. Its keys are a promise.
#[derive(Debug, Serialize)]
struct Deed {
    at: String,
    actor: String,
    why: String,
    verb: String,
    queue: Option<QueueName>,
    key: Option<OrderingKey>,
    ids: Vec<MessageId>,
    destination: Option<DestinationName>,
}

impl From<AuditRow> for Deed {
    fn from(row: AuditRow) -> Self {
        let AuditRow { at, action, verb, queue, destination, ids, key } = row;
        let Action { actor, why } = action;
        Self { at: rfc3339::format(at), actor, why, verb, queue, key, ids, destination }
    }
}

impl Deed {
    fn place(&self) -> String {
        let queue = self.queue.as_ref().map(QueueName::to_string);
        let destination = || self.destination.as_ref().map(|name| format!("destination {name}"));
        queue.or_else(destination).unwrap_or_default()
    }
}

pub(crate) async fn run(args: Args, stop: CancellationToken) -> Result<Exit, Problem> {
    args.target.look(&stop, async |opened| ls(opened, &args.listing).await).await
}

async fn ls(opened: &Opened, listing: &Listing) -> Result<Exit, Problem> {
    let rows = opened.inspect().audit(listing.wanted()).await;
    let deeds = rows.map_err(|error| opened.problem(&error))?.into_iter().map(Deed::from).collect();
    listing.answer(deeds, table, "deeds")
}

fn table(deeds: &[Deed]) -> String {
    let mut table = Table::new(["AT", "ACTOR", "VERB", "WHERE", "MESSAGES", "KEY", "WHY"]);
    for deed in deeds {
        table.push([
            deed.at.clone(),
            deed.actor.clone(),
            deed.verb.clone(),
            deed.place(),
            deed.ids.len().to_string(),
            deed.key.as_ref().map(OrderingKey::to_string).unwrap_or_default(),
            deed.why.clone(),
        ]);
    }
    table.to_string()
}
