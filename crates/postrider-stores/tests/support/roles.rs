//! Login roles of the test's server, and psql as one of them. Roles belong to the whole server, so each has a name of its own
//! and is dropped with this value.

use postrider_stores::postgres::{PostgresStore, Role};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, Executor, PgConnection, postgres::PgConnectOptions};
use std::{
    io::Write,
    process::{Command, Stdio},
    str::FromStr,
};

/// A login role of one test. Declare it after the fixture, so that it is dropped before the database.
#[derive(Debug)]
pub(crate) struct Login {
    pub(crate) name: String,
    pub(crate) url: String,
    admin_url: String,
}

impl Login {
    /// A role with the grants of `role` and nothing else.
    pub(crate) async fn new(database: &str, store: &PostgresStore, role: Role) -> Self {
        let login = Self::without_grants(database).await;
        login.admin(&store.grants(role, &login.name).unwrap()).await;
        login
    }

    /// A role without grants.
    pub(crate) async fn without_grants(database: &str) -> Self {
        let name = format!("postrider_test_{}", uuid::Uuid::now_v7().simple());
        let options = PgConnectOptions::from_str(database).unwrap();
        let url = options.username(&name).password(&name).to_url_lossy().to_string();
        // Without settings that only sqlx understands, and without defaults.
        let (start, settings) = url.split_once('?').unwrap_or((&url, ""));
        let own =
            |setting: &&str| setting.starts_with("statement-cache-capacity") || *setting == "sslmode=prefer";
        let settings: Vec<_> = settings.split('&').filter(|setting| !own(setting)).collect();
        let url = [start, &settings.join("&")].join("?").trim_end_matches('?').to_owned();
        let login = Self { name, url, admin_url: database.to_owned() };
        login.admin(&format!("create role {0} login password '{0}'", login.name)).await;
        login
    }

    /// Runs statements as the operator of the database.
    pub(crate) async fn admin(&self, sql: &str) {
        run(&self.admin_url, sql).await;
    }

    /// Runs a script with psql as this role. Returns its output, or its errors.
    pub(crate) fn psql(&self, script: &str) -> Result<String, String> {
        let mut psql = Command::new("psql")
            .args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-v", "VERBOSITY=verbose", &self.url])
            .env("PGCLIENTENCODING", "UTF8")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| {
                panic!("psql does not start ({error}): install the Debian package postgresql-client")
            });
        psql.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
        let output = psql.wait_with_output().unwrap();
        if output.status.success() {
            Ok(String::from_utf8(output.stdout).unwrap().trim_end().to_owned())
        } else {
            Err(String::from_utf8(output.stderr).unwrap())
        }
    }

    /// Runs a statement that must fail, and returns the code and the message.
    pub(crate) fn psql_error(&self, script: &str) -> (String, String) {
        let errors = match self.psql(script) {
            Ok(printed) => panic!("{script} did not fail: {printed}"),
            Err(errors) => errors,
        };
        let line = errors.lines().find_map(|line| line.strip_prefix("ERROR:  "));
        let line = line.unwrap_or_else(|| panic!("{script}: {errors}"));
        let (code, message) = line.split_once(": ").unwrap();
        (code.to_owned(), message.to_owned())
    }
}

impl Drop for Login {
    fn drop(&mut self) {
        let (url, name) = (self.admin_url.clone(), self.name.clone());
        // A thread of its own, because a test's runtime may already be shutting down.
        let dropper = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(run(&url, &format!("drop owned by {name} cascade; drop role {name}")));
        });
        // A role that is left over does not disturb other tests.
        dropper.join().ok();
    }
}

async fn run(url: &str, sql: &str) {
    let mut connection = PgConnection::connect(url).await.unwrap();
    connection.execute(AssertSqlSafe(sql.to_owned())).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
    connection.close().await.unwrap();
}
