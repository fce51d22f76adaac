//! The names of the objects of the schema, and their placeholders in SQL (`template.rs`).
//!
//! `{ready}` stands for a qualified, quoted table and `{#ready}` for the bare quoted name; `{#schema}`, `{#prefix}`, `{#signal}`
//! (the channel) and `{#notify}` (a setting) are bare text, for use between quotes. The schema and the prefix passed the check below,
//! so they cannot contain a quote.

use crate::template::{self, Template};
use postrider_core::Invalid;
use sqlx::{AssertSqlSafe, postgres::PgArguments};
use std::sync::Arc;

/// The longest name that is derived from the prefix, in bytes.
const LONGEST_OBJECT: &str = "archive_rest_expires";
/// PostgreSQL truncates longer identifiers without an error.
pub(super) const IDENTIFIER_BYTES: usize = 63;

/// The objects that statements name. The migrations have more, which only they name.
pub(super) const OBJECTS: &[&str] = objects! {
    admit append_ledger archive archive_rest audit audit_replay cancel_timer change_partition claim_lanes
    dead declare_queue discard drop_timer erase_subject finish_follow_up idle inbox inbox_count lane
    ledger ledger_head mark_fair message_position migration partition_changes pause pause_work queue
    queue_id ready release_key replay requeue resume_work saga_log schedule scheduled settle_lanes
    stage_many stage_new survey_tenants timer; notify schema signal
};

/// A template of this store.
macro_rules! sql {
    ($($template:tt)*) => { template!($crate::postgres::names::OBJECTS; $($template)*) };
}

/// The schema and the table prefix of one store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PostgresNames {
    schema: String,
    prefix: String,
}

impl Default for PostgresNames {
    /// Schema `postrider`, no prefix.
    fn default() -> Self {
        Self { schema: "postrider".to_owned(), prefix: String::new() }
    }
}

impl PostgresNames {
    /// Tables in `schema`, whose names start with `prefix`. The prefix may be empty.
    ///
    /// # Errors
    /// When a name is not `[a-z_][a-z0-9_]*`, or the longest derived name has more than 63 bytes.
    pub fn new(schema: impl Into<String>, prefix: impl Into<String>) -> Result<Self, Invalid> {
        let (schema, prefix) = (schema.into(), prefix.into());
        check("schema", &schema)?;
        if !prefix.is_empty() {
            check("prefix", &prefix)?;
        }
        let longest = schema.len().max(prefix.len() + LONGEST_OBJECT.len());
        if longest > IDENTIFIER_BYTES {
            let max = IDENTIFIER_BYTES - LONGEST_OBJECT.len();
            return Err(Invalid::rule(
                "prefix",
                format!(
                    "is {} bytes long; at most {max} are allowed, because {prefix}{LONGEST_OBJECT} would have {longest} \
                     bytes and PostgreSQL keeps 63",
                    prefix.len()
                ),
            ));
        }
        Ok(Self { schema, prefix })
    }

    pub(super) fn schema(&self) -> &str {
        &self.schema
    }

    pub(super) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The channel of the notifications: `{#signal}` in the statements.
    pub(super) fn channel(&self) -> String {
        format!("{}.{}signal", self.schema, self.prefix)
    }

    /// A statement with the names filled in.
    pub(super) fn sql(&self, template: &Template) -> Sql {
        Sql { text: self.render(template.as_str()).into(), is_prepared: true }
    }

    /// A script or a part of one, with the names filled in.
    pub(super) fn render(&self, script: &str) -> String {
        let Self { schema, prefix } = self;
        template::render(script, |sql, name| match name.strip_prefix('#') {
            Some("signal") => sql.push_str(&self.channel()),
            Some("notify") => sql.extend([schema, ".", prefix, "notify"]),
            Some("schema") => sql.push_str(schema),
            Some("prefix") => sql.push_str(prefix),
            Some(bare) => sql.extend(["\"", prefix, bare, "\""]),
            None => sql.extend(["\"", schema, "\".\"", prefix, name, "\""]),
        })
    }
}

/// Refuses a name that means something else in quotes, or could end them.
pub(super) fn check(field: &'static str, name: &str) -> Result<(), Invalid> {
    let mut bytes = name.bytes();
    let first = bytes.next().is_some_and(|b| b.is_ascii_lowercase() || b == b'_');
    if !first || !bytes.all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_') {
        return Err(Invalid::rule(
            field,
            format!(
                "{name:?} is not a plain identifier: use lower-case letters, digits and _, beginning with a letter"
            ),
        ));
    }
    Ok(())
}

/// A statement rendered from a template.
#[derive(Debug, Clone)]
pub(super) struct Sql {
    text: Arc<str>,
    is_prepared: bool,
}

impl Sql {
    /// Never keeps the statement prepared, for pooled sessions.
    pub(super) fn unprepared(self) -> Self {
        Self { is_prepared: false, ..self }
    }

    pub(super) fn query(&self) -> sqlx::query::Query<'_, sqlx::Postgres, PgArguments> {
        sqlx::query(AssertSqlSafe(Arc::clone(&self.text))).persistent(self.is_prepared)
    }

    pub(super) fn as_str(&self) -> &str {
        &self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn render_replaces_placeholders_with_quoted_names_and_keeps_other_braces() {
        let names = PostgresNames::new("app", "pr_").unwrap();
        assert_eq!(
            names.render("select '{}'::uuid[] from {ready} -- {#ready_key} {Not}"),
            "select '{}'::uuid[] from \"app\".\"pr_ready\" -- \"pr_ready_key\" {Not}"
        );
    }

    #[test]
    fn every_object_is_in_the_schema() {
        let in_schema = |name: &&str| {
            let found = |line: &str| line.split([' ', '\t', '(']).nth(1) == Some(name);
            *name == "migration"
                || name.starts_with('#')
                || super::super::validate::EXPECTED.lines().any(found)
        };
        assert_eq!(OBJECTS.iter().find(|name| !in_schema(name)), None);
    }

    #[test]
    fn new_with_invalid_names_is_refused() {
        for name in ["", "Upper", "1st", "a-b", "a b", "a\"b", "a;drop table x", "a.b", "ä", "a\0b"] {
            assert!(PostgresNames::new(name, "").is_err(), "{name:?}");
        }
        assert!(PostgresNames::new("app", "p".repeat(43)).is_ok());
        assert!(PostgresNames::new("app", "p".repeat(44)).is_err());
        assert!(PostgresNames::new("s".repeat(64), "").is_err());
    }
}
