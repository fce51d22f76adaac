//! `postrider audit ls`: the actions of operators.

use crate::{
    exit::Exit,
    open_database::OpenDatabase,
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
  postrider audit ls --db shop.db                        the last 100 actions
  postrider audit ls --db shop.db --limit 10000 --jsonl  with all message ids";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    target: Target,

    #[command(flatten)]
    listing: Listing,
}

/// An action of an operator as JSON. Its keys are stable.
#[derive(Debug, Serialize)]
struct OperatorAction {
    at: String,
    actor: String,
    why: String,
    verb: String,
    queue: Option<QueueName>,
    key: Option<OrderingKey>,
    ids: Vec<MessageId>,
    destination: Option<DestinationName>,
}

impl From<AuditRow> for OperatorAction {
    fn from(row: AuditRow) -> Self {
        let AuditRow { at, action, verb, queue, destination, ids, key } = row;
        let Action { actor, why } = action;
        Self { at: rfc3339::format(at), actor, why, verb, queue, key, ids, destination }
    }
}

impl OperatorAction {
    fn subject(&self) -> String {
        let queue = self.queue.as_ref().map(QueueName::to_string);
        let destination = || self.destination.as_ref().map(|name| format!("destination {name}"));
        queue.or_else(destination).unwrap_or_default()
    }
}

pub(crate) async fn run(args: Args, stop: CancellationToken) -> Result<Exit, Problem> {
    args.target.look(&stop, async |opened| ls(opened, &args.listing).await).await
}

async fn ls(opened: &OpenDatabase, listing: &Listing) -> Result<Exit, Problem> {
    let rows = opened.backend().audit(listing.wanted()).await;
    let actions =
        rows.map_err(|error| opened.problem(&error))?.into_iter().map(OperatorAction::from).collect();
    listing.answer(actions, table, "actions")
}

fn table(actions: &[OperatorAction]) -> String {
    let mut table = Table::new(["AT", "ACTOR", "VERB", "QUEUE OR DESTINATION", "MESSAGES", "KEY", "WHY"]);
    for action in actions {
        table.push([
            action.at.clone(),
            action.actor.clone(),
            action.verb.clone(),
            action.subject(),
            action.ids.len().to_string(),
            action.key.as_ref().map(OrderingKey::to_string).unwrap_or_default(),
            action.why.clone(),
        ]);
    }
    table.to_string()
}
