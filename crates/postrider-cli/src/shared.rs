//! Arguments that many subcommands share.

use crate::{
    database::{Database, Way},
    exit::Exit,
    logs,
    open_database::OpenDatabase,
    output,
    problem::Problem,
};
use clap::builder::FalseyValueParser;
use postrider::inspect::Action;
use serde::{Serialize, Serializer, ser::SerializeMap};
use tokio_util::sync::CancellationToken;

/// The database of a command.
#[derive(Debug, clap::Args)]
pub(crate) struct Target {
    /// SQLite file, or postgres://user@host:5432/database
    #[arg(long, value_name = "PATH|URL", env = "POSTRIDER_DB", hide_env_values = true)]
    pub(crate) db: Database,

    #[command(flatten)]
    through: Through,
}

/// How to connect to `--db`.
#[derive(Debug, clap::Args)]
pub(crate) struct Through {
    /// The URL points to a pooler in transaction mode, such as PgBouncer
    #[arg(long, env = "POSTRIDER_BEHIND_POOLER", hide_env_values = true, value_parser = FalseyValueParser::new())]
    behind_pooler: bool,
}

impl Through {
    pub(crate) fn to(&self, database: &Database) -> Database {
        database.clone().reached(Way { behind_pooler: self.behind_pooler, listen_url: None })
    }
}

impl Target {
    /// The database with its connection settings.
    pub(crate) fn database(&self) -> Database {
        self.through.to(&self.db)
    }

    /// Opens the database, runs a read-only command and closes the database; `stop` interrupts it.
    pub(crate) async fn look(
        &self,
        stop: &CancellationToken,
        look: impl AsyncFnOnce(&OpenDatabase) -> Result<Exit, Problem>,
    ) -> Result<Exit, Problem> {
        stop.run_until_cancelled(self.work(look)).await.unwrap_or(Ok(Exit::Interrupted))
    }

    /// Opens the database, runs a command to its end, and closes the database.
    pub(crate) async fn work(
        &self,
        work: impl AsyncFnOnce(&OpenDatabase) -> Result<Exit, Problem>,
    ) -> Result<Exit, Problem> {
        logs::start(None, "error");
        let opened = OpenDatabase::existing(&self.database()).await?;
        let exit = work(&opened).await;
        opened.close().await;
        exit
    }
}

/// The output of a listing.
#[derive(Debug, clap::Args)]
pub(crate) struct Listing {
    /// Maximum number of rows
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    limit: u32,

    /// Print one JSON object, and nothing else, on stdout
    #[arg(long, conflicts_with = "jsonl")]
    json: bool,

    /// Print one JSON object per line, and nothing else, on stdout
    #[arg(long)]
    jsonl: bool,
}

impl Listing {
    /// The number of items to fetch: one more than is shown, to detect whether there are more.
    pub(crate) fn wanted(&self) -> usize {
        (self.limit as usize).saturating_add(1)
    }

    /// Writes the items as one JSON object under the name of their kind, as one object per line, or as a table; and notes if there are
    /// more.
    pub(crate) fn answer<T: Serialize>(
        &self,
        mut items: Vec<T>,
        table: impl FnOnce(&[T]) -> String,
        kind: &str,
    ) -> Result<Exit, Problem> {
        let more = items.len() >= self.wanted();
        items.truncate(self.limit as usize);
        let items = &items[..];
        let words = kind.replace('_', "-");
        if self.json {
            output::json(&Items { kind, items, more })?;
        } else if self.jsonl {
            items.iter().try_for_each(output::json)?;
        } else if items.is_empty() {
            eprintln!("No {words} found.");
        } else {
            output::text(&table(items))?;
        }
        if more {
            eprintln!("More than {} {words}: raise --limit, or narrow the filter.", self.limit);
        }
        Ok(Exit::Success)
    }
}

/// A list under the name of its kind, and whether there are more.
struct Items<'i, T> {
    kind: &'i str,
    items: &'i [T],
    more: bool,
}

impl<T: Serialize> Serialize for Items<'_, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(2))?;
        map.serialize_entry(self.kind, self.items)?;
        map.serialize_entry("more", &self.more)?;
        map.end()
    }
}

/// The operator of a change, and the reason. The store records both in the audit log.
#[derive(Debug, clap::Args)]
pub(crate) struct Operator {
    /// Operator name for the audit log [default: $USER]
    #[arg(long)]
    actor: Option<String>,

    /// Reason for the audit log
    #[arg(long)]
    why: String,
}

impl Operator {
    /// For commands on which the reason is optional.
    pub(crate) fn of(actor: Option<String>, why: String) -> Self {
        Self { actor, why }
    }

    pub(crate) fn action(&self) -> Result<Action, Problem> {
        let variable = |name| std::env::var(name).ok().filter(|user| !user.is_empty());
        let user = || ["USER", "LOGNAME"].into_iter().find_map(variable);
        let actor = self.actor.clone().or_else(user).ok_or_else(|| {
            Problem::new("cannot determine the operator name", "pass --actor or set USER")
                .with_exit(Exit::Usage)
        })?;
        let action = Action::new(actor, self.why.as_str());
        action.check().map_err(|error| {
            Problem::new(
                error.to_string(),
                "pass the operator with --actor and the reason with --why, on one line each",
            )
            .with_exit(Exit::Usage)
        })?;
        Ok(action)
    }
}
