//! `postrider migrate`: the tables of the store.

use crate::{answer, database::Database, exit::Exit, logs, opened::Opened, problem::Problem, shared::Target};
use postrider::{postgres, schema::Drift, sqlite};
use serde::Serialize;
use tokio_util::sync::CancellationToken;

const EXAMPLES: &str = "Examples:
  postrider migrate up --db shop.db                        make the tables, or bring them to this version
  postrider migrate status --db postgres://localhost/shop  which version they have
  postrider migrate validate --db shop.db                  whether they are what this version needs
  postrider migrate print --kind postgres > postrider.sql  the same as SQL, for a migration tool of your own";

#[derive(Debug, clap::Subcommand)]
#[command(after_help = EXAMPLES)]
pub(crate) enum Migrate {
    /// Make the tables, or bring them to this version; a file of SQLite that is missing is made
    Up(Args),
    /// Tell which version the tables have, and whether that is this one
    Status(Args),
    /// List everything that is missing or altered; ends with 1 if there is something
    Validate(Args),
    /// Print the statements that make the tables; needs no database
    Print(PrintArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    target: Target,

    /// Print one object of JSON, and nothing else, on stdout
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct PrintArgs {
    /// For which database
    #[arg(long)]
    kind: Kind,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Kind {
    Postgres,
    Sqlite,
}

/// Where the tables are, for programs. Its keys are a promise.
#[derive(Debug, Serialize)]
struct Standing {
    /// What was applied last; none when there are no tables.
    applied: Option<i64>,
    needed: i64,
    up_to_date: bool,
}

/// What was found, for programs. Its keys are a promise.
#[derive(Debug, Serialize)]
struct Found {
    drift: Vec<Difference>,
}

#[derive(Debug, Serialize)]
struct Difference {
    object: String,
    expected: String,
    found: Option<String>,
    /// What mends it; none when postrider migrate up does.
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
                let status = async |opened: &Opened| status(opened, args.json).await;
                args.target.look(&stop, status).await
            }
            Self::Validate(args) => {
                let validate = async |opened: &Opened| validate(opened, args.json).await;
                args.target.look(&stop, validate).await
            }
            Self::Print(PrintArgs { kind }) => answer::text(&statements(kind)).map(|()| Exit::Well),
        }
    }
}

async fn up(args: &Args, stop: &CancellationToken) -> Result<Exit, Problem> {
    logs::start(None, "error");
    let database = &args.target.database();
    if database.way().behind_pooler {
        let what = "migrations hold a lock of their session, and a pooler lends sessions to others";
        let advice = "give --db the server's own address, without --behind-pooler";
        return Err(Problem::new(what, advice).ending(Exit::Misused));
    }
    let migrating = async {
        let opened = Opened::open(database).await?;
        let migrated = opened.schema().migrate().await.map_err(|error| database.problem(&error));
        let standing = match migrated {
            Ok(()) => standing(&opened).await,
            Err(problem) => Err(problem),
        };
        opened.close().await;
        standing
    };
    let Some(standing) = stop.run_until_cancelled(migrating).await else { return Ok(Exit::Interrupted) };
    tell(&standing?, database, args.json)?;
    Ok(Exit::Well)
}

async fn status(opened: &Opened, json: bool) -> Result<Exit, Problem> {
    tell(&standing(opened).await?, opened.database(), json)?;
    Ok(Exit::Well)
}

async fn standing(opened: &Opened) -> Result<Standing, Problem> {
    let migrations = opened.schema().migrations().await.map_err(|error| opened.problem(&error))?;
    let (applied, needed) = (migrations.applied.last().map(|last| last.number), migrations.needed);
    Ok(Standing { applied, needed, up_to_date: applied == Some(needed) })
}

fn tell(standing: &Standing, database: &Database, json: bool) -> Result<(), Problem> {
    if json {
        return answer::json(standing);
    }
    let Standing { applied, needed, .. } = standing;
    answer::text(&match applied {
        None => format!("{database}: no tables; this program needs version {needed}: postrider migrate up"),
        Some(applied) if applied == needed => format!("{database}: version {applied}, up to date"),
        Some(applied) if applied < needed => {
            format!("{database}: version {applied}; this program needs {needed}: postrider migrate up")
        }
        Some(applied) => {
            format!("{database}: version {applied}; this program knows {needed}: use a newer program")
        }
    })
}

async fn validate(opened: &Opened, json: bool) -> Result<Exit, Problem> {
    let drift = opened.schema().validate().await.map_err(|error| opened.problem(&error))?;
    let exit = if drift.is_empty() { Exit::Well } else { Exit::Failed };
    if json {
        answer::json(&Found { drift: drift.into_iter().map(Difference::from).collect() })?;
        return Ok(exit);
    }
    for difference in &drift {
        answer::text(&difference.to_string())?;
    }
    match drift.len() {
        0 => answer::text(&format!("{}: the tables are what this version needs", opened.database()))?,
        count => eprintln!(
            "{count} {} from what this version needs; what is missing, postrider migrate up may make",
            if count == 1 { "difference" } else { "differences" }
        ),
    }
    Ok(exit)
}

fn statements(kind: Kind) -> String {
    match kind {
        Kind::Postgres => postgres::Names::default().print(),
        Kind::Sqlite => sqlite::Names::default().print(),
    }
}
