//! `postrider migrate`: the schema of the store.

use crate::{
    database::Database, exit::Exit, logs, open_database::OpenDatabase, output, problem::Problem,
    shared::Target,
};
use postrider::{postgres, schema::Drift, sqlite};
use serde::Serialize;
use tokio_util::sync::CancellationToken;

const EXAMPLES: &str = "Examples:
  postrider migrate up --db shop.db
  postrider migrate status --db postgres://localhost/shop
  postrider migrate validate --db shop.db
  postrider migrate print --kind postgres > postrider.sql";

#[derive(Debug, clap::Subcommand)]
#[command(after_help = EXAMPLES)]
pub(crate) enum Migrate {
    /// Create or upgrade the schema; creates a missing SQLite file
    Up(Args),
    /// Show the schema version, and the version this program needs
    Status(Args),
    /// List schema drift; exits with 1 when there is any
    Validate(Args),
    /// Print the SQL that creates the schema; needs no database
    Print(PrintArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    target: Target,

    /// Print one JSON object to stdout, and nothing else
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct PrintArgs {
    /// Kind of database
    #[arg(long)]
    kind: Kind,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Kind {
    Postgres,
    Sqlite,
}

/// The schema version as JSON. Its keys are stable.
#[derive(Debug, Serialize)]
struct SchemaVersion {
    /// The last migration that was applied; none when there are no tables.
    applied: Option<i64>,
    needed: i64,
    up_to_date: bool,
}

/// The drift as JSON. Its keys are stable.
#[derive(Debug, Serialize)]
struct DriftReport {
    drift: Vec<Difference>,
}

#[derive(Debug, Serialize)]
struct Difference {
    object: String,
    expected: String,
    found: Option<String>,
    /// The statement that fixes the drift; none when `postrider migrate up` does.
    fix: Option<String>,
}

impl From<Drift> for Difference {
    fn from(Drift { object, expected, found, fix }: Drift) -> Self {
        Self { object, expected, found, fix }
    }
}

impl Migrate {
    pub(crate) async fn run(self, stop: CancellationToken) -> Result<Exit, Problem> {
        match self {
            Self::Up(args) => up(&args, &stop).await,
            Self::Status(args) => {
                let status = async |opened: &OpenDatabase| status(opened, args.json).await;
                args.target.look(&stop, status).await
            }
            Self::Validate(args) => {
                let validate = async |opened: &OpenDatabase| validate(opened, args.json).await;
                args.target.look(&stop, validate).await
            }
            Self::Print(PrintArgs { kind }) => output::text(&statements(kind)).map(|()| Exit::Success),
        }
    }
}

async fn up(args: &Args, stop: &CancellationToken) -> Result<Exit, Problem> {
    logs::start(None, "error");
    let database = &args.target.database();
    if database.way().behind_pooler {
        let what = "migrations need a session lock, which a pooler in transaction mode cannot hold";
        let advice = "give --db the server's own address, without --behind-pooler";
        return Err(Problem::new(what, advice).with_exit(Exit::Usage));
    }
    let migrating = async {
        let opened = OpenDatabase::open(database).await?;
        let migrated = opened.backend().migrate().await.map_err(|error| database.problem(&error));
        let version = match migrated {
            Ok(()) => version(&opened).await,
            Err(problem) => Err(problem),
        };
        opened.close().await;
        version
    };
    let Some(version) = stop.run_until_cancelled(migrating).await else { return Ok(Exit::Interrupted) };
    print(&version?, database, args.json)?;
    Ok(Exit::Success)
}

async fn status(opened: &OpenDatabase, json: bool) -> Result<Exit, Problem> {
    print(&version(opened).await?, opened.database(), json)?;
    Ok(Exit::Success)
}

async fn version(opened: &OpenDatabase) -> Result<SchemaVersion, Problem> {
    let migrations = opened.backend().migrations().await.map_err(|error| opened.problem(&error))?;
    let (applied, needed) = (migrations.applied.last().map(|last| last.number), migrations.needed);
    Ok(SchemaVersion { applied, needed, up_to_date: applied == Some(needed) })
}

fn print(version: &SchemaVersion, database: &Database, json: bool) -> Result<(), Problem> {
    if json {
        return output::json(version);
    }
    let SchemaVersion { applied, needed, .. } = version;
    output::text(&match applied {
        None => format!(
            "{database}: not migrated; this program needs schema version {needed}: run postrider migrate up"
        ),
        Some(applied) if applied == needed => format!("{database}: schema version {applied}, up to date"),
        Some(applied) if applied < needed => {
            format!(
                "{database}: schema version {applied}; this program needs {needed}: run postrider migrate up"
            )
        }
        Some(applied) => {
            format!(
                "{database}: schema version {applied} is newer than this program, which knows {needed}: install a newer postrider"
            )
        }
    })
}

async fn validate(opened: &OpenDatabase, json: bool) -> Result<Exit, Problem> {
    let drift = opened.backend().validate().await.map_err(|error| opened.problem(&error))?;
    let exit = if drift.is_empty() { Exit::Success } else { Exit::Failed };
    if json {
        output::json(&DriftReport { drift: drift.into_iter().map(Difference::from).collect() })?;
        return Ok(exit);
    }
    for difference in &drift {
        output::text(&difference.to_string())?;
    }
    match drift.len() {
        0 => output::text(&format!("{}: the schema is what this version needs", opened.database()))?,
        count => eprintln!(
            "{count} {} from the schema that this version needs; postrider migrate up may create missing objects",
            if count == 1 { "difference" } else { "differences" }
        ),
    }
    Ok(exit)
}

fn statements(kind: Kind) -> String {
    match kind {
        Kind::Postgres => postgres::PostgresNames::default().print(),
        Kind::Sqlite => sqlite::SqliteNames::default().print(),
    }
}
