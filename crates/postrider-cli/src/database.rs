//! Where `--db` leads.

use crate::problem::{Code, Problem};
use clap::{
    builder::{TypedValueParser, ValueParserFactory},
    error::ErrorKind,
};
use postrider::Error;
use sqlx::{Connection, PgConnection, error::DatabaseError, postgres::PgConnectOptions};
use std::{ffi::OsStr, fmt, io, path::PathBuf, str::FromStr, time::Duration};
use tempfile::TempDir;

/// A server that says nothing for so long is away.
const PATIENCE: Duration = Duration::from_secs(5);

/// A database by its path or URL.
#[derive(Debug, Clone)]
pub(crate) enum Database {
    /// A file of SQLite.
    File(PathBuf),
    /// A database on a server of PostgreSQL, by its URL, which may hold a password.
    Postgres { url: String, options: Box<PgConnectOptions>, way: Way },
}

/// How a server is reached.
#[derive(Debug, Clone, Default)]
pub(crate) struct Way {
    /// Through a pooler that lends a session of the server for one transaction at a time.
    pub(crate) behind_pooler: bool,
    /// The server's own URL, for what needs a session to itself: signals and migrations.
    pub(crate) listen_url: Option<String>,
}

impl FromStr for Database {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let help = "give the path of a file for SQLite, or postgres://user@host:5432/database";
        match text.split_once(':') {
            Some(("postgres" | "postgresql", _)) => {
                let options =
                    text.parse().map_err(|error| format!("the URL cannot be read ({error}); {help}"))?;
                Ok(Self::Postgres { url: text.to_owned(), options: Box::new(options), way: Way::default() })
            }
            Some(("", "memory:")) => {
                Err(format!("leave --db out for a database that is thrown away; or {help}"))
            }
            Some(("sqlite", path)) => Self::file(path.strip_prefix("//").unwrap_or(path), help),
            Some((_, rest)) if rest.starts_with("//") => {
                Err(format!("no such kind of database is known; {help}"))
            }
            _ => Self::file(text, help),
        }
    }
}

/// Reads a database from the arguments. Unlike the usual one, it does not repeat what it cannot read, which may hold a password.
#[derive(Debug, Clone)]
pub(crate) struct Reader;

impl TypedValueParser for Reader {
    type Value = Database;

    fn parse_ref(
        &self,
        command: &clap::Command,
        _: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<Database, clap::Error> {
        let text = value.to_str().ok_or_else(|| "it is not UTF-8; give a path or a URL that is".to_owned());
        text.and_then(str::parse).map_err(|error: String| {
            clap::Error::raw(ErrorKind::ValueValidation, format!("--db: {error}\n")).with_cmd(command)
        })
    }
}

impl ValueParserFactory for Database {
    type Parser = Reader;

    fn value_parser() -> Reader {
        Reader
    }
}

impl Database {
    fn file(path: &str, help: &str) -> Result<Self, String> {
        if path.is_empty() { Err(help.to_owned()) } else { Ok(Self::File(path.into())) }
    }

    /// The same database, reached this way. A file is reached in one way only.
    #[must_use]
    pub(crate) fn reached(self, way: Way) -> Self {
        match self {
            Self::Postgres { url, mut options, .. } => {
                if way.behind_pooler {
                    // Poolers refuse what they do not know at the start of a connection.
                    *options = options.extra_float_digits(None);
                }
                Self::Postgres { url, options, way }
            }
            file @ Self::File(_) => file,
        }
    }

    /// How it is reached.
    pub(crate) fn way(&self) -> Way {
        match self {
            Self::Postgres { way, .. } => way.clone(),
            Self::File(_) => Way::default(),
        }
    }

    /// A file of this name in a folder that goes with its guard.
    pub(crate) fn temporary(name: &str) -> Result<(Self, TempDir), Problem> {
        let folder = tempfile::Builder::new().prefix("postrider-").tempdir().map_err(|error| {
            let what =
                format!("no temporary file can be made in {}: {error}", std::env::temp_dir().display());
            let advice = "point TMPDIR to a folder that this user may write to, or give a path with --db";
            Problem::new(what, advice).coded(Code::Database)
        })?;
        Ok((Self::File(folder.path().join(name)), folder))
    }

    /// What to do about an error that the store reports.
    pub(crate) fn problem(&self, error: &Error) -> Problem {
        let advice = match (self, error) {
            (_, Error::SchemaMismatch(_)) => {
                "its tables come from another version: give another database".to_owned()
            }
            (Self::File(_), Error::Unavailable(_)) => {
                "give a path with --db that this user may write to".to_owned()
            }
            (Self::File(_), _) => "if it is not a file of SQLite, give another path with --db".to_owned(),
            (Self::Postgres { options, .. }, error) => {
                let cause = match error {
                    Error::Unavailable(source) | Error::Other(source) => source.downcast_ref::<sqlx::Error>(),
                    _ => None,
                };
                let what = cause.map_or_else(|| error.to_string(), words);
                return Problem::new(format!("{self}: {what}"), postgres_advice(cause, options))
                    .coded(Code::Database);
            }
        };
        let code = if matches!(error, Error::SchemaMismatch(_)) { Code::Schema } else { Code::Database };
        Problem::new(error.to_string(), advice).coded(code)
    }

    /// Knocks at a server once, which tells sooner and better what is wrong than a pool that keeps trying.
    pub(crate) async fn knock(&self) -> Result<(), Problem> {
        let Self::Postgres { options, .. } = self else { return Ok(()) };
        let answer = match tokio::time::timeout(PATIENCE, PgConnection::connect_with(options)).await {
            Ok(answer) => answer,
            Err(_) => {
                Err(io::Error::new(io::ErrorKind::TimedOut, format!("no answer within {PATIENCE:?}")).into())
            }
        };
        match answer {
            Ok(connection) => connection.close().await.or(Ok(())),
            Err(error) => Err(Problem::new(
                format!("{self}: {}", words(&error)),
                postgres_advice(Some(&error), options),
            )
            .coded(Code::Database)),
        }
    }
}

/// The server's own words, without those of the driver.
fn words(error: &sqlx::Error) -> String {
    match error {
        sqlx::Error::Database(error) => error.message().to_owned(),
        sqlx::Error::Io(error) => error.to_string(),
        error => error.to_string(),
    }
}

fn postgres_advice(error: Option<&sqlx::Error>, options: &PgConnectOptions) -> String {
    let code = error.and_then(sqlx::Error::as_database_error).and_then(DatabaseError::code);
    let name = options.get_database().unwrap_or(options.get_username());
    match (code.as_deref(), error) {
        (Some("3D000"), _) => format!("make the database first: createdb {name}"),
        (Some("28P01" | "28000"), _) => "check the user and the password in the URL".to_owned(),
        (Some("42501"), _) => {
            format!("this user may not make tables there; let it: grant create on database {name} to …")
        }
        (Some("53300"), _) => {
            "the server has no free connection: close some, or raise max_connections".to_owned()
        }
        (_, Some(sqlx::Error::Io(_) | sqlx::Error::PoolTimedOut)) => {
            "start the server, or check the host and the port in the URL".to_owned()
        }
        _ => "check the URL and the server's log".to_owned(),
    }
}

impl fmt::Display for Database {
    /// Without the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "SQLite in {}", path.display()),
            Self::Postgres { options, .. } => {
                let name = options.get_database().unwrap_or(options.get_username());
                write!(f, "PostgreSQL at {}:{}/{name}", options.get_host(), options.get_port())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> Result<String, String> {
        text.parse::<Database>().map(|database| database.to_string())
    }

    #[test]
    fn paths_and_urls_are_told_apart() {
        for (text, expected) in [
            ("shop.db", "SQLite in shop.db"),
            ("/tmp/shop.db", "SQLite in /tmp/shop.db"),
            ("sqlite:shop.db", "SQLite in shop.db"),
            ("sqlite:///tmp/shop.db", "SQLite in /tmp/shop.db"),
            (r"C:\shop.db", r"SQLite in C:\shop.db"),
            ("postgres://me:secret@db:5433/shop", "PostgreSQL at db:5433/shop"),
            ("postgresql://me@db/shop", "PostgreSQL at db:5432/shop"),
        ] {
            assert_eq!(shown(text), Ok(expected.to_owned()));
        }
    }

    #[test]
    fn what_is_neither_is_refused_with_help_and_without_the_password() {
        for text in
            ["", "sqlite://", ":memory:", "mysql://me:secret@db/shop", "postgres://me:secret@db:port/shop"]
        {
            let error = shown(text).unwrap_err();
            assert!(error.contains("give the path of a file"), "{error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
