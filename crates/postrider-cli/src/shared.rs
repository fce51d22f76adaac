//! Arguments that many subcommands have.

use crate::{answer, database::Database, exit::Exit, logs, opened::Opened, problem::Problem};
use postrider::inspect::Action;
use serde::{Serialize, Serializer, ser::SerializeMap};
use tokio_util::sync::CancellationToken;

/// Which database.
#[derive(Debug, clap::Args)]
pub(crate) struct Target {
    /// A file of SQLite, or postgres://user@host:5432/database
    #[arg(long, value_name = "PATH|URL", env = "POSTRIDER_DB", hide_env_values = true)]
    pub(crate) db: Database,
}

impl Target {
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
        let opened = Opened::existing(&self.db).await?;
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
    pub(crate) fn limit(&self) -> usize {
        self.limit as usize
    }

    /// Writes the items: in an object under the name of their kind, one a line, or in a table. Says so when there are more.
    pub(crate) fn answer<T: Serialize>(
        &self,
        items: &[T],
        more: bool,
        table: impl FnOnce(&[T]) -> String,
        kind: &str,
    ) -> Result<Exit, Problem> {
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
