//! `postrider audit verify`: verifies the hash chain of the ledger.

use crate::{
    database::Database,
    exit::Exit,
    logs,
    open_database::OpenDatabase,
    output,
    problem::{Code, Problem},
    shared::Target,
};
use postrider::{
    AuditError, Error,
    audit::{self, ChainHead, VerifyError},
};
use serde::Serialize;
use tokio_util::sync::CancellationToken;

const EXAMPLES: &str = "Examples:
  postrider audit verify --db shop.db                    print the chain's head
  postrider audit verify --db shop.db --pinned 20:5f0c…  must extend this head

The hash chain reveals changed, removed and inserted events. A user who may
write to the whole database can rewrite the whole ledger: store the head
elsewhere, and give it with --pinned the next time.

The exit code is 0 when the ledger is intact, 1 when it is broken or cannot be
read, and 2 when the arguments are wrong.";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    target: Target,

    /// Head of the chain that an earlier run printed
    #[arg(long, value_name = "HEAD")]
    pinned: Option<ChainHead>,

    /// Print one JSON object to stdout, and nothing else
    #[arg(long)]
    json: bool,
}

/// The outcome as JSON. Its keys are stable.
#[derive(Debug, Serialize)]
struct Report {
    events: u64,
    head: String,
    pinned: Option<String>,
}

/// Verifies the ledger to its end, or until `stop` requests a stop.
pub(crate) async fn run(args: Args, stop: CancellationToken) -> Result<Exit, Problem> {
    logs::start(None, "error");
    let database = args.target.database();
    let verifying = verify(&database, args.pinned);
    let Some(head) = stop.run_until_cancelled(verifying).await else { return Ok(Exit::Interrupted) };
    let head = head?;
    if args.json {
        let pinned = args.pinned.map(|pinned| pinned.to_string());
        output::json(&Report { events: head.position, head: head.to_string(), pinned })?;
    } else {
        let events = if head.position == 1 { "event" } else { "events" };
        output::text(&format!("ledger verified: {} {events}\nhead {head}", head.position))?;
    }
    Ok(Exit::Success)
}

async fn verify(database: &Database, pinned: Option<ChainHead>) -> Result<ChainHead, Problem> {
    let opened = OpenDatabase::existing(database).await?;
    let verified = audit::verify(&*opened.ledger(), pinned).await;
    opened.close().await;
    verified.map_err(|error| problem(database, error))
}

fn problem(database: &Database, error: VerifyError) -> Problem {
    match error {
        VerifyError::Broken(found) => Problem::new(
            format!("{database}: {found}"),
            "keep the database unchanged, and compare it with a backup: that event is the first that breaks the chain",
        )
        .with_code(Code::Ledger),
        VerifyError::Unread(AuditError::Store(Error::SchemaMismatch(words))) => Problem::new(
            format!("{database}: the ledger cannot be read ({words})"),
            "give the database in which follow-ups are staged; postrider migrate up adds the ledger to an older schema",
        )
        .with_code(Code::Schema),
        VerifyError::Unread(AuditError::Store(error)) => database.problem(&error),
        VerifyError::Unread(error) => Problem::new(
            format!("{database}: {error}"),
            "keep the database unchanged, and compare it with a backup",
        )
        .with_code(Code::Ledger),
    }
}
