//! `postrider audit verify`: whether the ledger is what was appended.

use crate::{
    answer,
    database::Database,
    exit::Exit,
    logs,
    opened::Opened,
    problem::{Code, Problem},
    shared::Target,
};
use postrider::{
    AuditError, Error,
    audit::{self, Head, Unverified},
};
use serde::Serialize;
use tokio_util::sync::CancellationToken;

const EXAMPLES: &str = "Examples:
  postrider audit verify --db shop.db                           the events, and the head of their chain
  postrider audit verify --db shop.db --pinned 20:5f0c…         and it must also go on from where it ended then

The ledger finds by itself what was changed, removed or inserted. Whoever may write to all of the database can write the
whole of it anew: write the head down elsewhere, and give it with --pinned the next time.

It ends with 0 when the ledger holds; with 1 when it is broken, and where, or when it cannot be read; with 2 when it was
called wrongly.";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    target: Target,

    /// A head that was printed earlier
    #[arg(long, value_name = "HEAD")]
    pinned: Option<Head>,

    /// Print one object of JSON, and nothing else, on stdout
    #[arg(long)]
    json: bool,
}

/// What was found, for programs. Its keys are a promise.
#[derive(Debug, Serialize)]
struct Report {
    events: u64,
    head: String,
    pinned: Option<String>,
}

/// Follows the ledger to its end, or until `stop` asks it to end.
pub(crate) async fn run(args: Args, stop: CancellationToken) -> Result<Exit, Problem> {
    logs::start(None, "error");
    let database = args.target.database();
    let verifying = verify(&database, args.pinned);
    let Some(head) = stop.run_until_cancelled(verifying).await else { return Ok(Exit::Interrupted) };
    let head = head?;
    if args.json {
        let pinned = args.pinned.map(|pinned| pinned.to_string());
        answer::json(&Report { events: head.position, head: head.to_string(), pinned })?;
    } else {
        let events = if head.position == 1 { "event is" } else { "events are" };
        answer::text(&format!("{} {events} what was appended\nhead {head}", head.position))?;
    }
    Ok(Exit::Well)
}

async fn verify(database: &Database, pinned: Option<Head>) -> Result<Head, Problem> {
    let opened = Opened::existing(database).await?;
    let verified = audit::verify(&*opened.ledger(), pinned).await;
    opened.close().await;
    verified.map_err(|error| problem(database, error))
}

fn problem(database: &Database, error: Unverified) -> Problem {
    match error {
        Unverified::Broken(found) => Problem::new(
            format!("{database}: {found}"),
            "keep the database as it is, and compare it with a backup: that event is the first that does not fit",
        )
        .coded(Code::Ledger),
        Unverified::Unread(AuditError::Store(Error::SchemaMismatch(words))) => Problem::new(
            format!("{database}: it has no ledger that can be read ({words})"),
            "give the database in which follow-ups are staged; one of an earlier version gets a ledger when it is migrated",
        )
        .coded(Code::Schema),
        Unverified::Unread(AuditError::Store(error)) => database.problem(&error),
        Unverified::Unread(error) => Problem::new(
            format!("{database}: {error}"),
            "keep the database as it is, and compare it with a backup",
        )
        .coded(Code::Ledger),
    }
}
