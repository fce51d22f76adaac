//! `[databases.…]`: the databases that messages are staged in.

use super::{origin::ConfigValue, secret::Secret, setting::Settings, table::Table};
use crate::database::{Database, Way};

pub(super) const KEYS: [&str; 7] =
    ["url", "url_env", "url_file", "behind_pooler", "listen_url", "listen_url_env", "listen_url_file"];

#[derive(Debug, Clone)]
pub(crate) struct DatabaseSection {
    url: ConfigValue<Secret>,
    /// Whether the URL points to a pooler in transaction mode.
    behind_pooler: ConfigValue<bool>,
    /// The direct URL of the server, for notifications (LISTEN) and migrations.
    listen_url: Option<ConfigValue<Secret>>,
    database: Database,
}

impl DatabaseSection {
    pub(crate) fn read(table: &Table<'_>) -> Option<Self> {
        table.reject_unknown_keys(&KEYS);
        let example = "\"shop.db\"";
        let url = table.url("url", example);
        if !table.is_set("url") {
            table.report_missing("url", example);
        }
        let behind_pooler = table.flag("behind_pooler").unwrap_or(ConfigValue::default(false));
        let listen_url = table.url("listen_url", "\"postgres://server:5432/shop\"");
        if let Some(listen_url) = &listen_url
            && !matches!(listen_url.reveal().parse(), Ok(Database::Postgres { .. }))
        {
            let what = format!("{} is not the URL of a PostgreSQL server", table.path("listen_url"));
            let help = "write the server's own address, such as postgres://server:5432/shop";
            table.report(table.line_of_value(listen_url), what, help);
        }
        let url = url?;
        let database: Database = match url.reveal().parse() {
            Ok(database) => database,
            Err(help) => {
                table.report(table.line_of_value(&url), format!("invalid {}", table.path("url")), help);
                return None;
            }
        };
        for key in ["behind_pooler", "listen_url", "listen_url_env", "listen_url_file"] {
            if table.has(key) && matches!(database, Database::File(_)) {
                let what = format!("{} does not apply to a SQLite file", table.path(key));
                table.report(table.line_of(key), what, "remove it: it is for PostgreSQL servers");
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
