//! The database that `--db` names.

use crate::problem::{Code, Problem};
use clap::{
    builder::{TypedValueParser, ValueParserFactory},
    error::ErrorKind,
};
use postrider::{
    ClientOptions, Error, Invalid,
    postgres::{connect_options, tls_failure},
};
use sqlx::{Connection, PgConnection, error::DatabaseError, postgres::PgConnectOptions};
use std::{ffi::OsStr, fmt, io, path::PathBuf, str::FromStr};
use tempfile::TempDir;

/// A database by its path or URL.
#[derive(Debug, Clone)]
pub(crate) enum Database {
    /// A SQLite file.
    File(PathBuf),
    /// A PostgreSQL database by the options of its client, which may hold a password; and the same as sqlx takes them.
    Postgres { client: Box<ClientOptions>, options: Box<PgConnectOptions>, way: Way },
}

/// How to connect to a server.
#[derive(Debug, Clone, Default)]
pub(crate) struct Way {
    /// The URL points to a pooler in transaction mode.
    pub(crate) behind_pooler: bool,
    /// The direct URL of the server, for LISTEN and migrations, which need a session of their own.
    pub(crate) listen_url: Option<String>,
}

impl FromStr for Database {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let help = "write the path of a SQLite file, or postgres://user@host:5432/database";
        match text.split_once(':') {
            Some(("postgres" | "postgresql", _)) => {
                text.parse::<PgConnectOptions>().map_err(|error| format!("invalid URL ({error}); {help}"))?;
                Self::server(ClientOptions::new(text)).map_err(|error| error.to_string())
            }
            Some(("", "memory:")) => Err(format!("omit --db for a temporary database; or {help}")),
            Some(("sqlite", path)) => Self::file(path.strip_prefix("//").unwrap_or(path), help),
            Some((_, rest)) if rest.starts_with("//") => Err(format!("unsupported database scheme; {help}")),
            _ => Self::file(text, help),
        }
    }
}

/// Parses `--db`. Unlike clap's own parser, it does not repeat an invalid value, which may hold a password.
#[derive(Debug, Clone)]
pub(crate) struct DatabaseParser;

impl TypedValueParser for DatabaseParser {
    type Value = Database;

    fn parse_ref(
        &self,
        command: &clap::Command,
        _: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<Database, clap::Error> {
        let text = value.to_str().ok_or_else(|| "not UTF-8; write a path or a URL in UTF-8".to_owned());
        text.and_then(str::parse).map_err(|error: String| {
            clap::Error::raw(ErrorKind::ValueValidation, format!("--db: {error}\n")).with_cmd(command)
        })
    }
}

impl ValueParserFactory for Database {
    type Parser = DatabaseParser;

    fn value_parser() -> DatabaseParser {
        DatabaseParser
    }
}

impl Database {
    /// A PostgreSQL database.
    pub(crate) fn server(client: ClientOptions) -> Result<Self, Invalid> {
        let options = Box::new(connect_options(&client)?);
        Ok(Self::Postgres { client: Box::new(client), options, way: Way::default() })
    }

    fn file(path: &str, help: &str) -> Result<Self, String> {
        if path.is_empty() { Err(help.to_owned()) } else { Ok(Self::File(path.into())) }
    }

    /// The same database with these connection settings. They do not apply to a file.
    #[must_use]
    pub(crate) fn reached(self, way: Way) -> Self {
        match self {
            Self::Postgres { client, mut options, .. } => {
                if way.behind_pooler {
                    // Poolers reject unknown startup parameters.
                    *options = options.extra_float_digits(None);
                }
                Self::Postgres { client, options, way }
            }
            file @ Self::File(_) => file,
        }
    }

    /// The connection settings.
    pub(crate) fn way(&self) -> Way {
        match self {
            Self::Postgres { way, .. } => way.clone(),
            Self::File(_) => Way::default(),
        }
    }

    /// A file of this name in a temporary directory, which the guard deletes.
    pub(crate) fn temporary(name: &str) -> Result<(Self, TempDir), Problem> {
        let folder = tempfile::Builder::new().prefix("postrider-").tempdir().map_err(|error| {
            let what =
                format!("cannot create a temporary file in {}: {error}", std::env::temp_dir().display());
            let advice = "point TMPDIR to a directory that this user may write to, or pass a path with --db";
            Problem::new(what, advice).with_code(Code::Database)
        })?;
        Ok((Self::File(folder.path().join(name)), folder))
    }

    /// An error of the store as a problem with advice.
    pub(crate) fn problem(&self, error: &Error) -> Problem {
        let advice = match (self, error) {
            (_, Error::SchemaMismatch(_)) => {
                "run `postrider migrate status`: `postrider migrate up` upgrades older tables; newer tables need a newer postrider".to_owned()
            }
            (Self::File(_), Error::Unavailable(_)) => {
                "pass a path with --db that this user may write to".to_owned()
            }
            (Self::File(_), error) if error.to_string().contains("not a database") => {
                "pass the path of a SQLite database with --db".to_owned()
            }
            (Self::File(path), _) => format!("look for the cause: postrider doctor --db {}", path.display()),
            (Self::Postgres { options, .. }, error) => {
                let cause = match error {
                    Error::Unavailable(source) | Error::Other(source) => source.downcast_ref::<sqlx::Error>(),
                    _ => None,
                };
                let what = cause.map_or_else(|| error.to_string(), server_message);
                return Problem::new(format!("{self}: {what}"), postgres_advice(cause, options))
                    .with_code(Code::Database);
            }
        };
        let code = if matches!(error, Error::SchemaMismatch(_)) { Code::Schema } else { Code::Database };
        Problem::new(error.to_string(), advice).with_code(code)
    }

    /// Connects to the server once. This fails faster and with a better error than a pool that keeps trying.
    pub(crate) async fn check_connection(&self) -> Result<(), Problem> {
        let Self::Postgres { client, options, .. } = self else { return Ok(()) };
        let limit = client.connect_timeout();
        let connection = match tokio::time::timeout(limit, PgConnection::connect_with(options)).await {
            Ok(connection) => connection,
            Err(_) => {
                let silence = format!("no response within {limit:?}");
                Err(io::Error::new(io::ErrorKind::TimedOut, silence).into())
            }
        };
        match connection {
            Ok(connection) => connection.close().await.or(Ok(())),
            Err(error) => Err(Problem::new(
                format!("{self}: {}", server_message(&error)),
                postgres_advice(Some(&error), options),
            )
            .with_code(Code::Database)),
        }
    }
}

/// The server's message, without the driver's prefix, or the cause of a failed TLS handshake.
fn server_message(error: &sqlx::Error) -> String {
    if let Some(cause) = tls_failure(error) {
        return cause;
    }
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
        (Some("3D000"), _) => format!("create the database first: createdb {name}"),
        (Some("28P01" | "28000"), _) => "check the user and the password in the URL".to_owned(),
        (Some("42501"), _) => {
            permission_advice(&error.map(server_message).unwrap_or_default(), name, options.get_username())
        }
        (Some("53300"), _) => {
            "the server has no free connection: close some, or raise max_connections".to_owned()
        }
        (_, Some(error)) if tls_failure(error).is_some() => {
            "correct the certificates, or sslmode in the URL: see the guide \"TLS and connections\""
                .to_owned()
        }
        (_, Some(sqlx::Error::Io(_) | sqlx::Error::PoolTimedOut)) => {
            "start the server, or check the host and the port in the URL".to_owned()
        }
        _ => "check the URL and the server's log".to_owned(),
    }
}

/// Which permission is missing: only creating the schema needs a right on the whole database.
fn permission_advice(message: &str, database: &str, role: &str) -> String {
    if message.contains("for database") {
        format!("grant the right to create the schema: grant create on database {database} to {role}")
    } else {
        format!("grant role {role} what it lacks: postrider doctor --db with this URL prints the statements")
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

    fn parse(text: &str) -> Result<String, String> {
        text.parse::<Database>().map(|database| database.to_string())
    }

    #[test]
    fn parse_distinguishes_paths_from_urls() {
        for (text, expected) in [
            ("shop.db", "SQLite in shop.db"),
            ("/tmp/shop.db", "SQLite in /tmp/shop.db"),
            ("sqlite:shop.db", "SQLite in shop.db"),
            ("sqlite:///tmp/shop.db", "SQLite in /tmp/shop.db"),
            (r"C:\shop.db", r"SQLite in C:\shop.db"),
            ("postgres://me:secret@db:5433/shop", "PostgreSQL at db:5433/shop"),
            ("postgresql://me@db/shop", "PostgreSQL at db:5432/shop"),
        ] {
            assert_eq!(parse(text), Ok(expected.to_owned()));
        }
    }

    #[test]
    fn permission_advice_fits_the_object_that_was_denied() {
        let create = permission_advice("permission denied for database shop", "shop", "app");
        assert!(create.contains("grant create on database shop to app"), "{create}");
        for denied in ["permission denied for schema postrider", "permission denied for table ready"] {
            let advice = permission_advice(denied, "shop", "app");
            assert!(advice.contains("postrider doctor") && !advice.contains("grant create"), "{advice}");
        }
    }

    #[test]
    fn parse_rejects_other_text_with_help_and_without_the_password() {
        for text in
            ["", "sqlite://", ":memory:", "mysql://me:secret@db/shop", "postgres://me:secret@db:port/shop"]
        {
            let error = parse(text).unwrap_err();
            assert!(error.contains("write the path of a SQLite file"), "{error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
