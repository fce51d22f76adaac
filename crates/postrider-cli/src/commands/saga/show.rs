//! `postrider saga show`: the follow-ups and the ledger events of a subject, or of one follow-up.

use super::{
    QueueTarget,
    follow_up::{self, FollowUpView},
};
use crate::{exit::Exit, open_database::OpenDatabase, output, problem::Problem, table::Table};
use postrider::{
    AuditError, AuditEvent, AuditKind, MessageId, SubjectId, TenantId, audit::AuditRecord,
    cloudevents::rfc3339, follow_up::is_one, inspect::FindBy,
};
use serde::Serialize;
use tokio_util::sync::CancellationToken;

/// How many follow-ups of one subject are shown.
const MOST: usize = 1000;

const EXAMPLES: &str = "Examples:
  postrider saga show customer-17 --db shop.db     all follow-ups of a subject
  postrider saga show 0190f3a1-… --db shop.db      one follow-up, by its id

The exit code is 4 when neither the queue nor the ledger knows the subject.";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    source: QueueTarget,

    /// Subject, or id of a follow-up
    #[arg(value_name = "SUBJECT|ID")]
    subject_or_id: SubjectId,

    /// Tenant of the subject
    #[arg(long)]
    tenant: Option<TenantId>,

    /// Print one JSON object to stdout, and nothing else
    #[arg(long)]
    json: bool,
}

/// The follow-ups and the ledger as JSON. Its keys are stable.
#[derive(Debug, Serialize)]
struct SubjectReport {
    follow_ups: Vec<FollowUpView>,
    ledger: Vec<LedgerEvent>,
}

/// An event of the ledger.
#[derive(Debug, Serialize)]
struct LedgerEvent {
    position: u64,
    at: String,
    #[serde(flatten)]
    event: AuditEvent,
}

impl From<AuditRecord> for LedgerEvent {
    fn from(AuditRecord { position, at, event }: AuditRecord) -> Self {
        Self { position, at: rfc3339::format(at), event }
    }
}

pub(super) async fn run(args: Args, stop: &CancellationToken) -> Result<Exit, Problem> {
    args.source.target.look(stop, async |opened| show(opened, &args).await).await
}

async fn show(opened: &OpenDatabase, args: &Args) -> Result<Exit, Problem> {
    let id: Option<MessageId> = args.subject_or_id.as_str().parse().ok();
    let find_by =
        id.map_or_else(|| FindBy::Subject(args.tenant.clone(), args.subject_or_id.clone()), FindBy::Id);
    let found = opened.backend().find(&find_by, MOST).await.map_err(|error| opened.problem(&error))?;
    let queue = &args.source.queue;
    let found: Vec<_> =
        found.into_iter().filter(|entry| entry.message.queue() == queue && is_one(&entry.message)).collect();
    // Only the ledger knows a follow-up that succeeded and is not kept; the ledger is read by subject.
    let subject = match id {
        None => Some(args.subject_or_id.clone()),
        Some(_) => found.first().and_then(|entry| entry.message.subject().cloned()),
    };
    let records = match &subject {
        Some(subject) => {
            opened.ledger().read(subject).await.map_err(|error| ledger_problem(opened, error))?
        }
        None => Vec::new(),
    };
    let concerns = |event: &AuditEvent| match id {
        Some(id) => event.follow_up == Some(id),
        None => event.tenant == args.tenant,
    };
    let ledger: Vec<_> =
        records.into_iter().filter(|record| concerns(&record.event)).map(LedgerEvent::from).collect();
    let follow_ups: Vec<_> = found.iter().filter_map(FollowUpView::of).collect();
    if follow_ups.is_empty() && ledger.is_empty() {
        return Err(Problem::new(
            format!("queue {queue} has no follow-up of {}", args.subject_or_id),
            "name the queue with --queue and the tenant with --tenant, or list follow-ups: postrider saga ls",
        )
        .with_exit(Exit::NotFound));
    }
    if args.json {
        output::json(&SubjectReport { follow_ups, ledger })?;
        return Ok(Exit::Success);
    }
    if !follow_ups.is_empty() {
        output::text(&follow_up::table(&follow_ups))?;
    }
    if !ledger.is_empty() {
        output::text(&format!("\nLedger:\n{}", history(&ledger)))?;
    }
    Ok(Exit::Success)
}

fn history(ledger: &[LedgerEvent]) -> String {
    let mut table =
        Table::new(["AT", "EVENT", "RESOLVER", "OPERATION", "FOLLOW-UP", "ATTEMPT", "ACTOR", "ERROR"]);
    for LedgerEvent { at, event, .. } in ledger {
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

/// The name of the event in the ledger.
fn kind(kind: AuditKind) -> String {
    serde_json::to_value(kind).ok().and_then(|name| name.as_str().map(str::to_owned)).unwrap_or_default()
}

pub(super) fn ledger_problem(opened: &OpenDatabase, error: AuditError) -> Problem {
    match error {
        AuditError::Store(error) => opened.problem(&error),
        error => Problem::new(
            format!("{}: {error}", opened.database()),
            "verify the ledger: postrider audit verify",
        ),
    }
}
