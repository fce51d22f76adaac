//! Checks one database: connection, server, schema and queues.

use super::{Args, drift, locate, queues, report::LocatedFinding, schedules};
use crate::{
    config::RouteSection,
    database::{Database, Way},
    open_database::OpenDatabase,
};
use postrider::{
    Error, Finding, Message, QueueName, Severity,
    postgres::{PostgresOptions, PostgresStore},
    sqlite::SqliteFile,
};
use sqlx::{Connection, PgConnection, error::DatabaseError};
use std::{cmp::Reverse, path::Path, time::Duration};
use tokio::time::timeout;

/// A server that does not reply within this time is unreachable.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

pub(super) struct DatabaseCheck<'c> {
    pub(super) database: &'c Database,
    pub(super) routes: &'c [&'c RouteSection],
    /// The file with the routes.
    pub(super) config: Option<&'c Path>,
    /// The section of the database in that file.
    pub(super) section: Option<&'c str>,
}

/// The findings, and some messages of each queue, from which addresses are rendered.
#[derive(Debug, Default)]
pub(super) struct DatabaseReport {
    pub(super) findings: Vec<LocatedFinding>,
    pub(super) samples: Vec<(QueueName, Vec<Message>)>,
}

impl DatabaseCheck<'_> {
    pub(super) async fn run(&self, args: &Args) -> DatabaseReport {
        let mut samples = Vec::new();
        let mut findings = Vec::new();
        if let Database::File(path) = self.database {
            if !path.exists() {
                findings.push(self.unreachable(
                    "the file does not exist",
                    format!("postrider migrate up {}", self.option()),
                ));
                return self.report(findings, samples);
            }
            match SqliteFile::new(path).checkup().await {
                Ok(found) => findings.extend(found),
                Err(error) => {
                    let fix = format!("chmod u+r {}", shell_word(&path.display().to_string()));
                    findings.push(self.unreachable(&error.to_string(), fix));
                }
            }
            // Opening the file changes its journal mode, and fails when it is damaged.
            let is_usable =
                |finding: &Finding| finding.severity < Severity::Problem && finding.code != "journal_mode";
            if !findings.iter().all(is_usable) {
                return self.report(findings, samples);
            }
        }
        if let Some(finding) = self.missing_database().await {
            return self.report(vec![finding], samples);
        }
        if let Some(finding) = self.undeclared_pooler().await {
            return self.report(vec![self.with_file_fix(finding)], samples);
        }
        let opened = match OpenDatabase::existing(self.database).await {
            Ok(opened) => opened,
            Err(problem) => {
                findings.push(self.unreachable(&problem.to_string(), problem.advice().to_owned()));
                return self.report(findings, samples);
            }
        };
        if let Database::Postgres { .. } = self.database {
            match opened.backend().checkup(&args.request()).await {
                Ok(found) => findings.extend(found.into_iter().map(|finding| self.with_file_fix(finding))),
                Err(error) => findings.push(unchecked("server", &error)),
            }
        }
        match opened.backend().validate().await {
            Ok(drifts) => findings.extend(drift::findings(&drifts, &self.option())),
            Err(error) => findings.push(unchecked("tables", &error)),
        }
        // There are no queues without tables.
        if !findings.iter().any(|finding| finding.code == "unmigrated") {
            match queues::check_all(self, &opened, args.max_lag).await {
                Ok((found, sampled)) => {
                    findings.extend(found);
                    samples = sampled;
                    // A role that may not read the queues may not read the schedules either.
                    match schedules::check_all(self, &*opened.backend()).await {
                        Ok(found) => findings.extend(found),
                        Err(error) => findings.push(unchecked("schedules", &error)),
                    }
                }
                Err(error) => findings.push(unchecked("queues", &error)),
            }
        }
        opened.close().await;
        self.report(findings, samples)
    }

    fn report(&self, mut findings: Vec<Finding>, samples: Vec<(QueueName, Vec<Message>)>) -> DatabaseReport {
        findings.sort_by_key(|finding| Reverse(finding.severity));
        DatabaseReport { findings: locate(&self.database.to_string(), findings), samples }
    }

    /// With a configuration file, the fix is a setting in the file rather than another address.
    fn with_file_fix(&self, mut finding: Finding) -> Finding {
        let Some(section) = self.section else { return finding };
        // The store's fix is the address of the server itself, when the server knows it.
        let server =
            finding.fix.starts_with("postgres://").then(|| format!("listen_url = {:?}", finding.fix));
        let keys = match (finding.code, server) {
            ("transaction_pooling", Some(server)) => format!("behind_pooler = true and {server}"),
            ("transaction_pooling", None) => "behind_pooler = true".to_owned(),
            ("listen_not_working", Some(server)) => server,
            _ => return finding,
        };
        finding.fix = format!("write {keys} below {section}");
        finding
    }

    fn unreachable(&self, reason: &str, fix: String) -> Finding {
        Finding::problem("unreachable", "database").because(reason).fixed_by(fix)
    }

    /// A finding when the server is up, but has no such database.
    async fn missing_database(&self) -> Option<Finding> {
        let Database::Postgres { options, .. } = self.database else { return None };
        // A server that does not reply is reported as unreachable by the caller.
        let error = match timeout(CONNECT_TIMEOUT, PgConnection::connect_with(options)).await.ok()? {
            Ok(connection) => {
                connection.close().await.ok();
                return None;
            }
            Err(error) => error,
        };
        let code = error.as_database_error().and_then(DatabaseError::code)?;
        let name = options.get_database().unwrap_or(options.get_username());
        let (host, port, user) = (options.get_host(), options.get_port(), options.get_username());
        (code == "3D000").then(|| {
            Finding::problem("no_database", "database")
                .because(format!("the server has no database {name}"))
                .fixed_by(format!("createdb -h {host} -p {port} -U {user} {}", shell_word(name)))
        })
    }

    /// A finding when there is a pooler that the configuration does not declare. An ordinary store would leave its session settings in
    /// sessions of others, so the check opens one that leaves none.
    async fn undeclared_pooler(&self) -> Option<Finding> {
        let Database::Postgres { client, way: Way { behind_pooler: false, .. }, .. } = self.database else {
            return None;
        };
        // The caller reports a database that cannot be reached.
        self.database.check_connection().await.ok()?;
        let store =
            PostgresStore::open(PostgresOptions::new((**client).clone()).ok()?.behind_pooler()).await.ok()?;
        let pooler = store.pooling().await;
        store.close().await;
        pooler.ok()?
    }

    /// The option `--db …`, without the password.
    pub(super) fn option(&self) -> String {
        let location = match self.database {
            Database::File(path) => path.display().to_string(),
            Database::Postgres { client, .. } => without_password(client.url().unwrap_or_default()),
        };
        format!("--db {}", shell_word(&location))
    }
}

/// The printed commands take the password from `PGPASSWORD` or `~/.pgpass`.
fn without_password(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("postgres", url));
    let (login, address) = rest.rsplit_once('@').map_or(("", rest), |(login, address)| (login, address));
    let user = login.split(':').next().filter(|user| !user.is_empty());
    let user = user.map(|user| format!("{user}@")).unwrap_or_default();
    let (address, query) = address.split_once('?').unwrap_or((address, ""));
    let query = query.split('&').filter(|pair| !pair.is_empty() && !pair.starts_with("password="));
    let query = query.collect::<Vec<_>>().join("&");
    let query = if query.is_empty() { query } else { format!("?{query}") };
    format!("{scheme}://{user}{address}{query}")
}

/// A word, quoted for a shell when necessary.
pub(super) fn shell_word(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-:@+=,%".contains(c);
    match text.chars().all(is_plain) && !text.is_empty() {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}

/// A note when the role lacks permission, a warning for any other error.
fn unchecked(subject: &str, error: &Error) -> Finding {
    let cause = match error {
        Error::Unavailable(source) | Error::Other(source) => source.downcast_ref::<sqlx::Error>(),
        _ => None,
    };
    let code = cause.and_then(sqlx::Error::as_database_error).and_then(DatabaseError::code);
    let finding = match code.as_deref() {
        Some("42501") => Finding::note("unchecked", subject),
        _ => Finding::warning("unchecked", subject),
    };
    finding.because(format!("not checked: {error}")).fixed_by(
        "run postrider doctor as a database user with the operator role, or as the owner of the tables",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn option_never_contains_the_password() {
        for (url, shown) in [
            ("postgres://me:se@cret/@db:5433/shop", "postgres://me@db:5433/shop"),
            ("postgres://db/shop?user=me&password=secret", "postgres://db/shop?user=me"),
            ("postgres://me@db/shop?sslmode=require", "postgres://me@db/shop?sslmode=require"),
        ] {
            assert_eq!(without_password(url), shown);
        }
    }

    #[test]
    fn shell_word_with_special_characters_is_quoted() {
        assert_eq!(shell_word("shop.db"), "shop.db");
        assert_eq!(shell_word("Nell's shop"), r"'Nell'\''s shop'");
        assert_eq!(shell_word(""), "''");
    }
}
