//! The names of the objects of the schema, and their placeholders in SQL (`template.rs`).
//!
//! `{ready}` stands for a quoted table or index with our prefix, and `{now}` for the store's clock. The prefix passed the check below,
//! so it cannot contain a quote.

use crate::template::{self, Template};
use postrider_core::Invalid;
use sqlx::{AssertSqlSafe, SqlSafeStr, SqlStr, sqlite::SqliteArguments};
use std::sync::Arc;

/// Microseconds since 1970. SQLite reads its clock in milliseconds, once for each step of a statement. The triggers of plain
/// SQL use the same expression, which every version of SQLite understands.
const NOW: &str = "cast(round((julianday('now') - 2440587.5) * 86400000.0) as integer) * 1000";

/// More than enough for any prefix; SQLite itself has no limit.
const PREFIX_BYTES: usize = 43;

/// The objects that statements name, and the clock. The migrations have more, which only they name.
pub(super) const OBJECTS: &[&str] = objects! {
    archive archive_expires archive_message archive_page archive_subject audit dead dead_failed
    dead_message dead_position dead_subject idle inbox inbox_admitted inbox_count lane lane_due
    lane_free lane_leased ledger ledger_at ledger_event ledger_head ledger_subject migration now pause
    position queue ready ready_free ready_key ready_leased ready_message ready_subject ready_tenant
    saga_log schedule scheduled scheduled_due scheduled_message scheduled_subject timer
};

/// A template of this store.
macro_rules! sql {
    ($($template:tt)*) => { template!($crate::sqlite::names::OBJECTS; $($template)*) };
}

/// The table prefix of one store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SqliteNames {
    prefix: String,
}

impl Default for SqliteNames {
    /// The prefix `postrider_`, because the tables are in the application's own file.
    fn default() -> Self {
        Self { prefix: "postrider_".to_owned() }
    }
}

impl SqliteNames {
    /// Tables whose names begin with `prefix`, which may be empty.
    ///
    /// # Errors
    /// The prefix does not match `[a-z_][a-z0-9_]*`, begins with `sqlite_`, or has more than 43 bytes.
    pub fn new(prefix: impl Into<String>) -> Result<Self, Invalid> {
        let prefix = prefix.into();
        let is_plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
        if prefix.starts_with(|c: char| c.is_ascii_digit()) || !prefix.bytes().all(is_plain) {
            return Err(Invalid::rule(
                "prefix",
                format!(
                    "{prefix:?} is not a plain identifier: use lower-case letters, digits and _, beginning with a letter"
                ),
            ));
        }
        // SQLite reserves these names.
        if prefix.starts_with("sqlite_") {
            return Err(Invalid::rule("prefix", "must not begin with sqlite_, which SQLite reserves"));
        }
        if prefix.len() > PREFIX_BYTES {
            let rule = format!("is {} bytes long; at most {PREFIX_BYTES} are allowed", prefix.len());
            return Err(Invalid::rule("prefix", rule));
        }
        Ok(Self { prefix })
    }

    pub(super) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// A statement with the names of the tables filled in.
    pub(super) fn sql(&self, template: &Template) -> Sql {
        Sql(self.render(template.as_str()).into())
    }

    /// A script or a part of one, with the names filled in.
    pub(super) fn render(&self, script: &str) -> String {
        template::render(script, |sql, name| match name {
            "now" => sql.push_str(NOW),
            name => sql.extend(["\"", &self.prefix, name, "\""]),
        })
    }
}

/// The text of a statement, rendered from a template.
#[derive(Debug, Clone)]
pub(super) struct Sql(Arc<str>);

impl Sql {
    pub(super) fn query<'q>(&self) -> sqlx::query::Query<'q, sqlx::Sqlite, SqliteArguments> {
        sqlx::query(self.text())
    }

    /// For a driver that takes text.
    #[cfg(feature = "sea-orm")]
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }

    pub(super) fn text(&self) -> SqlStr {
        AssertSqlSafe(Arc::clone(&self.0)).into_sql_str()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn render_replaces_placeholders_by_quoted_names_and_keeps_other_braces() {
        let names = SqliteNames::new("pr_").unwrap();
        assert_eq!(
            names.render("select '{}' from {ready} -- {ready_key} {Not}"),
            "select '{}' from \"pr_ready\" -- \"pr_ready_key\" {Not}"
        );
    }

    #[test]
    fn every_object_is_in_the_schema() {
        let in_schema = |name: &&str| {
            let found = |line: &str| line.split([' ', '\t']).nth(1) == Some(name);
            matches!(*name, "migration" | "now") || super::super::validate::EXPECTED.lines().any(found)
        };
        assert_eq!(OBJECTS.iter().find(|name| !in_schema(name)), None);
    }

    /// A message staged through plain SQL gets the same due time as one staged through Rust, to the microsecond.
    #[test]
    fn plain_sql_uses_the_clock_of_the_store() {
        let plain_sql = include_str!("migrations/0001_initial/02_plain_sql.sql");
        assert_eq!(plain_sql.matches("julianday('now')").count(), plain_sql.matches(NOW).count());
        assert!(plain_sql.contains(NOW));
    }

    #[test]
    fn invalid_prefixes_are_rejected() {
        for prefix in ["Upper", "1st", "a-b", "a b", "a\"b", "a;drop table x", "a.b", "ä", "a\0b", "sqlite_x"]
        {
            assert!(SqliteNames::new(prefix).is_err(), "{prefix:?}");
        }
        assert!(SqliteNames::new("").is_ok());
        assert!(SqliteNames::new("p".repeat(44)).is_err());
    }
}
