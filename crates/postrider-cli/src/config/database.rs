//! `[databases.…]`: where messages are staged.

use super::{origin::Found, secret::Secret, setting::Settings, table::Table};
use crate::database::Database;

#[derive(Debug, Clone)]
pub(crate) struct DatabaseSection {
    url: Found<Secret>,
    database: Database,
}

impl DatabaseSection {
    pub(crate) fn read(table: &Table<'_>) -> Option<Self> {
        table.knows(&["url", "url_env", "url_file"]);
        let example = "\"shop.db\"";
        let Some(url) = table.secret("url", example) else {
            if !["url", "url_env", "url_file"].iter().any(|key| table.has(key)) {
                table.missing("url", example);
            }
            return None;
        };
        match url.reveal().parse() {
            Ok(database) => Some(Self { url, database }),
            Err(help) => {
                table.wrong(table.line_at(&url), format!("{} cannot be read", table.path("url")), help);
                None
            }
        }
    }

    pub(crate) fn database(&self) -> &Database {
        &self.database
    }

    pub(crate) fn settings(&self, name: &str, settings: &mut Settings) {
        settings.add(format!("databases.{name}.url"), &self.url, self.database.to_string());
    }
}

impl PartialEq for DatabaseSection {
    fn eq(&self, other: &Self) -> bool {
        self.url == other.url
    }
}
