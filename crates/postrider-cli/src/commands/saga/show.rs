//! `postrider saga show`: everything known of a subject's follow-ups, or of one of them.

use super::{
    Place,
    case::{self, Case},
};
use crate::{answer, exit::Exit, opened::Opened, problem::Problem, table::Table};
use postrider::{
    AuditError, AuditEvent, AuditKind, MessageId, SubjectId, TenantId, audit::Recorded, cloudevents::rfc3339,
    follow_up::is_one, inspect::Clue,
};
use serde::Serialize;
use tokio_util::sync::CancellationToken;

/// How many of one subject are shown.
const MOST: usize = 1000;

const EXAMPLES: &str = "Examples:
  postrider saga show customer-17 --db shop.db                  its follow-ups, and what the ledger says of it
  postrider saga show 0190f3a1-… --json --db shop.db            one of them, by its id";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    place: Place,

    /// The subject, or the id of a follow-up
    #[arg(value_name = "SUBJECT|ID")]
    what: SubjectId,

    /// Whose subject it is
    #[arg(long)]
    tenant: Option<TenantId>,

    /// Print one object of JSON, and nothing else, on stdout
    #[arg(long)]
    json: bool,
}

/// What is known, for programs. Its keys are a promise.
#[derive(Debug, Serialize)]
struct Known {
    follow_ups: Vec<Case>,
    ledger: Vec<Told>,
}

/// What the ledger says.
#[derive(Debug, Serialize)]
struct Told {
    position: u64,
    at: String,
    #[serde(flatten)]
    event: AuditEvent,
}

impl From<Recorded> for Told {
    fn from(Recorded { position, at, event }: Recorded) -> Self {
        Self { position, at: rfc3339::format(at), event }
    }
}

pub(super) async fn run(args: Args, stop: &CancellationToken) -> Result<Exit, Problem> {
    args.place.target.look(stop, async |opened| show(opened, &args).await).await
}

async fn show(opened: &Opened, args: &Args) -> Result<Exit, Problem> {
    let id: Option<MessageId> = args.what.as_str().parse().ok();
    let clue = id.map_or_else(|| Clue::Subject(args.tenant.clone(), args.what.clone()), Clue::Id);
    let found = opened.inspect().find(&clue, MOST).await.map_err(|error| opened.problem(&error))?;
    let queue = &args.place.queue;
    let found: Vec<_> =
        found.into_iter().filter(|entry| entry.message.queue() == queue && is_one(&entry.message)).collect();
    // One that succeeded and is not kept is known to the ledger alone, which is read by subject.
    let subject = match id {
        None => Some(args.what.clone()),
        Some(_) => found.first().and_then(|entry| entry.message.subject().cloned()),
    };
    let told = match &subject {
        Some(subject) => opened.ledger().read(subject).await.map_err(|error| unread(opened, error))?,
        None => Vec::new(),
    };
    let about = |event: &AuditEvent| match id {
        Some(id) => event.follow_up == Some(id),
        None => event.tenant == args.tenant,
    };
    let ledger: Vec<_> = told.into_iter().filter(|told| about(&told.event)).map(Told::from).collect();
    let follow_ups: Vec<_> = found.iter().filter_map(Case::of).collect();
    if follow_ups.is_empty() && ledger.is_empty() {
        return Err(Problem::new(
            format!("queue {queue} has no follow-up of {}", args.what),
            "name the queue with --queue and the tenant with --tenant, or look with postrider saga ls",
        )
        .ending(Exit::NotFound));
    }
    if args.json {
        answer::json(&Known { follow_ups, ledger })?;
        return Ok(Exit::Well);
    }
    if !follow_ups.is_empty() {
        answer::text(&case::table(&follow_ups))?;
    }
    if !ledger.is_empty() {
        answer::text(&format!("\nThe ledger:\n{}", history(&ledger)))?;
    }
    Ok(Exit::Well)
}

fn history(ledger: &[Told]) -> String {
    let mut table =
        Table::new(["AT", "EVENT", "RESOLVER", "OPERATION", "FOLLOW-UP", "ATTEMPT", "ACTOR", "ERROR"]);
    for Told { at, event, .. } in ledger {
        table.push([
            at.clone(),
            kind(event.kind),
            event.resolver.as_ref().map(ToString::to_string).unwrap_or_default(),
            event.operation.as_ref().map(ToString::to_string).unwrap_or_default(),
            event.follow_up.map(|id| id.to_string()).unwrap_or_default(),
            event.attempt.map(|attempt| attempt.to_string()).unwrap_or_default(),
            event.actor.clone().unwrap_or_default(),
            event.error.clone().unwrap_or_default(),
        ]);
    }
    table.to_string()
}

/// The name that the ledger has for it.
fn kind(kind: AuditKind) -> String {
    serde_json::to_value(kind).ok().and_then(|name| name.as_str().map(str::to_owned)).unwrap_or_default()
}

pub(super) fn unread(opened: &Opened, error: AuditError) -> Problem {
    match error {
        AuditError::Store(error) => opened.problem(&error),
        error => Problem::new(
            format!("{}: {error}", opened.database()),
            "look whether the ledger holds: postrider audit verify",
        ),
    }
}
