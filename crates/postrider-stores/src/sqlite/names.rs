//! The names of the tables, and the only module that assembles SQL text.
//!
//! Statements are templates with placeholders: `{ready}` is a quoted table or index with our prefix, and `{now}` is the store's
//! clock. Nothing else is ever inserted into SQL: values are bound, and the prefix passed the check below, so it cannot contain a
//! quote.

use postrider_core::Invalid;
use sqlx::{AssertSqlSafe, SqlSafeStr, SqlStr, sqlite::SqliteArguments};
use std::sync::Arc;

/// Microseconds since 1970. SQLite reads its clock in milliseconds, once for each step of a statement. The triggers of plain
/// SQL use the same expression, which every version of SQLite understands.
const NOW: &str = "cast(round((julianday('now') - 2440587.5) * 86400000.0) as integer) * 1000";

/// More than enough for any prefix; SQLite itself has no limit.
const PREFIX_BYTES: usize = 43;

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
    pub(super) fn sql(&self, template: &str) -> Sql {
        Sql(self.render(template).into())
    }

    pub(super) fn render(&self, template: &str) -> String {
        let mut sql = String::with_capacity(template.len() + 256);
        let mut rest = template;
        while let Some(open) = rest.find('{') {
            sql.push_str(&rest[..open]);
            rest = &rest[open..];
            match placeholder(rest) {
                Some(("now", len)) => {
                    sql.push_str(NOW);
                    rest = &rest[len..];
                }
                Some((name, len)) => {
                    sql.extend(["\"", &self.prefix, name, "\""]);
                    rest = &rest[len..];
                }
                None => {
                    sql.push('{');
                    rest = &rest[1..];
                }
            }
        }
        sql.push_str(rest);
        sql
    }
}

/// The placeholder `{name}` at the beginning of `text`: its name and its total length.
fn placeholder(text: &str) -> Option<(&str, usize)> {
    let close = text.find('}')?;
    let name = &text[1..close];
    let fits = !name.is_empty() && name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
    fits.then_some((name, close + 1))
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
