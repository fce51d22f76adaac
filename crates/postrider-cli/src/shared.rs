//! Arguments that many subcommands have.

use crate::{
    answer,
    database::{Database, Way},
    exit::Exit,
    logs,
    opened::Opened,
    problem::Problem,
};
use clap::builder::FalseyValueParser;
use postrider::inspect::Action;
use serde::{Serialize, Serializer, ser::SerializeMap};
use tokio_util::sync::CancellationToken;

/// Which database.
#[derive(Debug, clap::Args)]
pub(crate) struct Target {
    /// A file of SQLite, or postgres://user@host:5432/database
    #[arg(long, value_name = "PATH|URL", env = "POSTRIDER_DB", hide_env_values = true)]
    pub(crate) db: Database,

    #[command(flatten)]
    through: Through,
}

/// What `--db` leads through.
#[derive(Debug, clap::Args)]
pub(crate) struct Through {
    /// The URL leads to a pooler in transaction mode, such as PgBouncer
    #[arg(long, env = "POSTRIDER_BEHIND_POOLER", hide_env_values = true, value_parser = FalseyValueParser::new())]
    behind_pooler: bool,
}

impl Through {
    pub(crate) fn to(&self, database: &Database) -> Database {
        database.clone().reached(Way { behind_pooler: self.behind_pooler, listen_url: None })
    }
}

impl Target {
    /// The database, by the way that leads to it.
    pub(crate) fn database(&self) -> Database {
        self.through.to(&self.db)
    }

    /// Opens the database, looks into it and closes it, until the end or until `stop` asks it to end.
    pub(crate) async fn look(
        &self,
        stop: &CancellationToken,
        look: impl AsyncFnOnce(&Opened) -> Result<Exit, Problem>,
    ) -> Result<Exit, Problem> {
        stop.run_until_cancelled(self.work(look)).await.unwrap_or(Ok(Exit::Interrupted))
    }

    /// Opens the database, works with it to the end, and closes it.
    pub(crate) async fn work(
        &self,
        work: impl AsyncFnOnce(&Opened) -> Result<Exit, Problem>,
    ) -> Result<Exit, Problem> {
        logs::start(None, "error");
        let opened = Opened::existing(&self.database()).await?;
        let ended = work(&opened).await;
        opened.close().await;
        ended
    }
}

/// How a list is answered.
#[derive(Debug, clap::Args)]
pub(crate) struct Listing {
    /// How many at the most
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    limit: u32,

    /// Print one object of JSON, and nothing else, on stdout
    #[arg(long, conflicts_with = "jsonl")]
    json: bool,

    /// Print one object of JSON a line, and nothing else, on stdout
    #[arg(long)]
    jsonl: bool,
}

impl Listing {
    /// How many to ask for: one more than is shown tells whether there are more.
    pub(crate) fn wanted(&self) -> usize {
        (self.limit as usize).saturating_add(1)
    }

    /// Writes the items: in an object under the name of their kind, one a line, or in a table. Says so when there are more.
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
            answer::json(&Items { kind, items, more })?;
        } else if self.jsonl {
            items.iter().try_for_each(answer::json)?;
        } else if items.is_empty() {
            eprintln!("There are no such {words}.");
        } else {
            answer::text(&table(items))?;
        }
        if more {
            eprintln!("There are more {words} than {}: raise --limit, or ask for fewer.", self.limit);
        }
        Ok(Exit::Well)
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

/// Who changes something, and why. The store writes it down with the change.
#[derive(Debug, clap::Args)]
pub(crate) struct Doer {
    /// Who does it; the user who is logged in unless given
    #[arg(long)]
    actor: Option<String>,

    /// Why; it is written down with the change
    #[arg(long)]
    why: String,
}

impl Doer {
    /// Where it is not always needed.
    pub(crate) fn of(actor: Option<String>, why: String) -> Self {
        Self { actor, why }
    }

    pub(crate) fn action(&self) -> Result<Action, Problem> {
        let said = |name| std::env::var(name).ok().filter(|user| !user.is_empty());
        let user = || ["USER", "LOGNAME"].into_iter().find_map(said);
        let actor = self.actor.clone().or_else(user).ok_or_else(|| {
            Problem::new("nobody knows who does it: USER and LOGNAME are empty", "say who with --actor")
                .ending(Exit::Misused)
        })?;
        let action = Action::new(actor, self.why.as_str());
        action.check().map_err(|error| {
            Problem::new(error.to_string(), "say who with --actor and why with --why, in one line each")
                .ending(Exit::Misused)
        })?;
        Ok(action)
    }
}
