//! One database: whether it can be reached, and whatever can be found there.

use super::{Args, at, drift, queues, report::Found};
use crate::{
    config::RouteSection,
    database::{Database, Way},
    opened::Opened,
};
use postrider::{
    Checkup, Error, Finding, Message, QueueName, Severity,
    postgres::{PostgresOptions, PostgresStore},
    sqlite::SqliteFile,
};
use sqlx::{Connection, PgConnection, error::DatabaseError};
use std::{cmp::Reverse, path::Path, time::Duration};
use tokio::time::timeout;

const PATIENCE: Duration = Duration::from_secs(5);

pub(super) struct Patient<'p> {
    pub(super) database: &'p Database,
    pub(super) routes: &'p [&'p RouteSection],
    /// Where the routes stand.
    pub(super) config: Option<&'p Path>,
    /// Where the database stands there.
    pub(super) section: Option<&'p str>,
}

/// What was found, and some messages of each queue, for whoever wants to know where they go.
#[derive(Debug, Default)]
pub(super) struct Examined {
    pub(super) findings: Vec<Found>,
    pub(super) samples: Vec<(QueueName, Vec<Message>)>,
}

impl Patient<'_> {
    pub(super) async fn examine(&self, args: &Args) -> Examined {
        let mut samples = Vec::new();
        let mut findings = Vec::new();
        if let Database::File(path) = self.database {
            if !path.exists() {
                findings.push(
                    self.unreachable("it is not there", format!("postrider migrate up {}", self.option())),
                );
                return self.examined(findings, samples);
            }
            match SqliteFile::new(path).checkup(&args.request()).await {
                Ok(found) => findings.extend(found),
                Err(error) => {
                    let fix = format!("chmod u+r {}", word(&path.display().to_string()));
                    findings.push(self.unreachable(&error.to_string(), fix));
                }
            }
            // Opening it changes its mode, and fails where it is damaged.
            let is_open =
                |finding: &Finding| finding.severity < Severity::Problem && finding.code != "journal_mode";
            if !findings.iter().all(is_open) {
                return self.examined(findings, samples);
            }
        }
        if let Some(finding) = self.missing().await {
            return self.examined(vec![finding], samples);
        }
        if let Some(finding) = self.pooler().await {
            return self.examined(vec![self.by_the_file(finding)], samples);
        }
        let opened = match Opened::existing(self.database).await {
            Ok(opened) => opened,
            Err(problem) => {
                findings.push(self.unreachable(&problem.to_string(), problem.advice().to_owned()));
                return self.examined(findings, samples);
            }
        };
        if let Database::Postgres { .. } = self.database {
            match opened.checkup().checkup(&args.request()).await {
                Ok(found) => findings.extend(found.into_iter().map(|finding| self.by_the_file(finding))),
                Err(error) => findings.push(unchecked("server", &error)),
            }
        }
        match opened.schema().validate().await {
            Ok(drifts) => findings.extend(drift::findings(&drifts, &self.option())),
            Err(error) => findings.push(unchecked("tables", &error)),
        }
        // Without its tables there are no queues.
        if !findings.iter().any(|finding| finding.code == "unmigrated") {
            match queues::examine(self, &opened, args.max_lag).await {
                Ok((found, sampled)) => {
                    findings.extend(found);
                    samples = sampled;
                }
                Err(error) => findings.push(unchecked("queues", &error)),
            }
        }
        opened.close().await;
        self.examined(findings, samples)
    }

    fn examined(&self, mut findings: Vec<Finding>, samples: Vec<(QueueName, Vec<Message>)>) -> Examined {
        findings.sort_by_key(|finding| Reverse(finding.severity));
        Examined { findings: at(&self.database.to_string(), findings), samples }
    }

    /// Whoever has a file need not give another address, and tells there what lies in between.
    fn by_the_file(&self, mut finding: Finding) -> Finding {
        let Some(section) = self.section else { return finding };
        // What the store tells is the server's own address, where the server knows it.
        let server =
            finding.fix.starts_with("postgres://").then(|| format!("listen_url = {:?}", finding.fix));
        let keys = match (finding.code, server) {
            ("transaction_pooling", Some(server)) => format!("behind_pooler = true and {server}"),
            ("transaction_pooling", None) => "behind_pooler = true".to_owned(),
            ("deaf", Some(server)) => server,
            _ => return finding,
        };
        finding.fix = format!("write {keys} below {section}");
        finding
    }

    fn unreachable(&self, what: &str, fix: String) -> Finding {
        Finding::problem("unreachable", "database").because(what).fixed_by(fix)
    }

    /// A server that answers, and does not have it.
    async fn missing(&self) -> Option<Finding> {
        let Database::Postgres { options, .. } = self.database else { return None };
        // Who says nothing is away, and told so elsewhere.
        let error = match timeout(PATIENCE, PgConnection::connect_with(options)).await.ok()? {
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
                .fixed_by(format!("createdb -h {host} -p {port} -U {user} {}", word(name)))
        })
    }

    /// A pooler that nobody has told of. The settings of a store that does not know of it would stay in sessions of others, so one is opened that
    /// leaves none.
    async fn pooler(&self) -> Option<Finding> {
        let Database::Postgres { url, way: Way { behind_pooler: false, .. }, .. } = self.database else {
            return None;
        };
        // Who cannot be reached is told elsewhere.
        self.database.knock().await.ok()?;
        let store = PostgresStore::open(PostgresOptions::new(url).ok()?.behind_pooler()).await.ok()?;
        let pooler = store.pooling().await;
        store.close().await;
        pooler.ok()?
    }

    /// `--db …`, without the password.
    pub(super) fn option(&self) -> String {
        let place = match self.database {
            Database::File(path) => path.display().to_string(),
            Database::Postgres { url, .. } => without_password(url),
        };
        format!("--db {}", word(&place))
    }
}

/// Whoever runs the command has the password elsewhere: in `PGPASSWORD` or `~/.pgpass`.
fn without_password(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("postgres", url));
    let (login, place) = rest.rsplit_once('@').map_or(("", rest), |(login, place)| (login, place));
    let user = login.split(':').next().filter(|user| !user.is_empty());
    let user = user.map(|user| format!("{user}@")).unwrap_or_default();
    let (place, query) = place.split_once('?').unwrap_or((place, ""));
    let query = query.split('&').filter(|pair| !pair.is_empty() && !pair.starts_with("password="));
    let query = query.collect::<Vec<_>>().join("&");
    let query = if query.is_empty() { query } else { format!("?{query}") };
    format!("{scheme}://{user}{place}{query}")
}

/// A word as a shell takes it.
pub(super) fn word(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-:@+=,%".contains(c);
    match text.chars().all(is_plain) && !text.is_empty() {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}

/// What whoever connects may not read is not wrong.
fn unchecked(what: &str, error: &Error) -> Finding {
    let cause = match error {
        Error::Unavailable(source) | Error::Other(source) => source.downcast_ref::<sqlx::Error>(),
        _ => None,
    };
    let code = cause.and_then(sqlx::Error::as_database_error).and_then(DatabaseError::code);
    let finding = match code.as_deref() {
        Some("42501") => Finding::note("unchecked", what),
        _ => Finding::warning("unchecked", what),
    };
    finding
        .because(format!("it cannot be looked at: {error}"))
        .fixed_by("look as somebody who may read it: postrider doctor --as operator")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_never_printed() {
        for (url, shown) in [
            ("postgres://me:se@cret/@db:5433/shop", "postgres://me@db:5433/shop"),
            ("postgres://db/shop?user=me&password=secret", "postgres://db/shop?user=me"),
            ("postgres://me@db/shop?sslmode=require", "postgres://me@db/shop?sslmode=require"),
        ] {
            assert_eq!(without_password(url), shown);
        }
    }

    #[test]
    fn a_word_is_quoted_where_a_shell_would_read_more_into_it() {
        assert_eq!(word("shop.db"), "shop.db");
        assert_eq!(word("Nell's shop"), r"'Nell'\''s shop'");
        assert_eq!(word(""), "''");
    }
}
