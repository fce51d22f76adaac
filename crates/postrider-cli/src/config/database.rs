//! `[databases.…]`: where messages are staged.

use super::{origin::Found, secret::Secret, setting::Settings, table::Table};
use crate::database::{Database, Way};

pub(super) const KEYS: [&str; 7] =
    ["url", "url_env", "url_file", "behind_pooler", "listen_url", "listen_url_env", "listen_url_file"];

#[derive(Debug, Clone)]
pub(crate) struct DatabaseSection {
    url: Found<Secret>,
    /// Whether the URL leads to a pooler in transaction mode.
    behind_pooler: Found<bool>,
    /// The server's own URL, for signals and migrations.
    listen_url: Option<Found<Secret>>,
    database: Database,
}

impl DatabaseSection {
    pub(crate) fn read(table: &Table<'_>) -> Option<Self> {
        table.knows(&KEYS);
        let example = "\"shop.db\"";
        let url = table.url("url", example);
        if !table.is_given("url") {
            table.missing("url", example);
        }
        let behind_pooler = table.flag("behind_pooler").unwrap_or(Found::default(false));
        let listen_url = table.url("listen_url", "\"postgres://server:5432/shop\"");
        if let Some(listen_url) = &listen_url
            && !matches!(listen_url.reveal().parse(), Ok(Database::Postgres { .. }))
        {
            let what = format!("{} is no URL of a server", table.path("listen_url"));
            let help = "give the server's own address, such as postgres://server:5432/shop";
            table.wrong(table.line_at(listen_url), what, help);
        }
        let url = url?;
        let database: Database = match url.reveal().parse() {
            Ok(database) => database,
            Err(help) => {
                table.wrong(table.line_at(&url), format!("{} cannot be read", table.path("url")), help);
                return None;
            }
        };
        for key in ["behind_pooler", "listen_url", "listen_url_env", "listen_url_file"] {
            if table.has(key) && matches!(database, Database::File(_)) {
                let what = format!("{} is given for a file of SQLite", table.path(key));
                table.wrong(table.line_of(key), what, "leave it out: it is for servers of PostgreSQL");
            }
        }
        let way = Way {
            behind_pooler: behind_pooler.value,
            listen_url: listen_url.as_ref().map(|url| url.reveal().to_owned()),
        };
        Some(Self { url, behind_pooler, listen_url, database: database.reached(way) })
    }

    pub(crate) fn database(&self) -> &Database {
        &self.database
    }

    pub(crate) fn settings(&self, name: &str, settings: &mut Settings) {
        let key = |last: &str| format!("databases.{name}.{last}");
        settings.add(key("url"), &self.url, self.database.to_string());
        if let Database::Postgres { .. } = self.database {
            settings.add(key("behind_pooler"), &self.behind_pooler, self.behind_pooler.value);
        }
        if let Some(listen_url) = &self.listen_url {
            settings.text(key("listen_url"), listen_url);
        }
    }
}

impl PartialEq for DatabaseSection {
    fn eq(&self, other: &Self) -> bool {
        (&self.url, &self.behind_pooler, &self.listen_url)
            == (&other.url, &other.behind_pooler, &other.listen_url)
    }
}
