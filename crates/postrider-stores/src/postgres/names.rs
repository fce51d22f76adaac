//! The names of the tables, and the only module that composes SQL text.
//!
//! Statements are templates in which `{ready}` stands for a qualified, quoted table and `{#ready}` for the bare quoted
//! name; `{#schema}`, `{#prefix}` and `{#signal}` (the channel) are bare text, for use between quotes. Nothing else is ever
//! spliced into SQL: values are bound, and the schema and the prefix passed the check below, so they cannot contain a quote.

use postrider_core::Invalid;
use sqlx::{AssertSqlSafe, postgres::PgArguments};
use std::sync::Arc;

/// The longest name that is derived from the prefix, in bytes.
const LONGEST_OBJECT: &str = "archive_rest_expires";
/// PostgreSQL truncates longer identifiers without an error.
pub(super) const IDENTIFIER_BYTES: usize = 63;

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
    pub(super) fn sql(&self, template: &str) -> Sql {
        Sql { text: self.render(template).into(), is_prepared: true }
    }

    pub(super) fn render(&self, template: &str) -> String {
        let mut sql = String::with_capacity(template.len() + 256);
        let mut rest = template;
        while let Some(open) = rest.find('{') {
            sql.push_str(&rest[..open]);
            rest = &rest[open..];
            match placeholder(rest) {
                Some((name, len)) => {
                    self.push(&mut sql, name);
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

    fn push(&self, sql: &mut String, name: &str) {
        let Self { schema, prefix } = self;
        let text = match name.strip_prefix('#') {
            Some("signal") => self.channel(),
            Some("schema") => schema.clone(),
            Some("prefix") => prefix.clone(),
            Some(bare) => format!("\"{prefix}{bare}\""),
            None => format!("\"{schema}\".\"{prefix}{name}\""),
        };
        sql.push_str(&text);
    }
}

/// The placeholder `{name}` or `{#name}` at the start of `text`: its name and its length.
fn placeholder(text: &str) -> Option<(&str, usize)> {
    let close = text.find('}')?;
    let name = &text[1..close];
    let bare = name.strip_prefix('#').unwrap_or(name);
    let fits = !bare.is_empty() && bare.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
    fits.then_some((name, close + 1))
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
    fn new_with_invalid_names_is_refused() {
        for name in ["", "Upper", "1st", "a-b", "a b", "a\"b", "a;drop table x", "a.b", "ä", "a\0b"] {
            assert!(PostgresNames::new(name, "").is_err(), "{name:?}");
        }
        assert!(PostgresNames::new("app", "p".repeat(43)).is_ok());
        assert!(PostgresNames::new("app", "p".repeat(44)).is_err());
        assert!(PostgresNames::new("s".repeat(64), "").is_err());
    }
}
