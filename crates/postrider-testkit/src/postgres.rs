//! A separate database for every test, copied from a template that is created once.

use crate::shared;
use postrider_servers::Kind;
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection, Row, postgres::PgConnectOptions};
use std::{future::Future, str::FromStr, time::Duration};

/// A database that is dropped with this value.
#[derive(Debug)]
pub struct TestDatabase {
    name: String,
    url: String,
}

/// The URL of the shared server. A missing server fails the run; tests are never skipped.
///
/// # Panics
/// When the variable is not set.
pub fn server_url() -> String {
    shared::url(Kind::Postgres)
}

impl TestDatabase {
    /// An empty database.
    pub async fn empty() -> Self {
        Self::create("template1").await
    }

    /// A copy of a template that `fill` has filled. The first test that needs this `version` creates the template; the others wait.
    pub async fn filled<F, Fut>(version: &str, fill: F) -> Self
    where
        F: FnOnce(String) -> Fut,
        Fut: Future<Output = ()>,
    {
        let mut admin = admin().await;
        let template: String = sqlx::query("select 'postrider_template_' || md5($1)")
            .bind(version)
            .fetch_one(&mut admin)
            .await
            .and_then(|row| row.try_get(0))
            .unwrap();
        admin.execute("select pg_advisory_lock(7077051)").await.unwrap();
        let there = sqlx::query("select from pg_database where datname = $1 and datistemplate")
            .bind(&template)
            .fetch_optional(&mut admin)
            .await
            .unwrap();
        if there.is_none() {
            // Left incomplete by a run that was killed.
            run(&mut admin, format!("drop database if exists {template} with (force)")).await;
            run(&mut admin, format!("create database {template}")).await;
            fill(url_of(&template)).await;
            run(&mut admin, format!("alter database {template} is_template true allow_connections false"))
                .await;
        }
        admin.execute("select pg_advisory_unlock(7077051)").await.unwrap();
        admin.close().await.unwrap();
        Self::create(&template).await
    }

    async fn create(template: &str) -> Self {
        let name = format!("postrider_test_{}", uuid::Uuid::now_v7().simple());
        let mut admin = admin().await;
        run(&mut admin, format!("create database {name} template {template}")).await;
        admin.close().await.unwrap();
        Self { url: url_of(&name), name }
    }

    /// The URL of the database.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns when a statement of a store waits for a lock in this database.
    ///
    /// # Panics
    /// When that does not happen within half a minute.
    pub async fn somebody_waits(&self) {
        let waiting = "select from pg_stat_activity where datname = $1 and application_name = 'postrider' \
            and wait_event_type = 'Lock'";
        let looking = async {
            let mut admin = admin().await;
            while sqlx::query(waiting).bind(&self.name).fetch_all(&mut admin).await.unwrap().is_empty() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), looking).await.expect("no statement waits for a lock");
    }
}

impl Drop for TestDatabase {
    fn drop(&mut self) {
        let name = self.name.clone();
        // On a separate thread, because a test's runtime may already be shutting down.
        let dropper = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                run(&mut admin().await, format!("drop database if exists {name} with (force)")).await;
            });
        });
        // A database that is left behind does not affect other tests.
        dropper.join().ok();
    }
}

async fn admin() -> PgConnection {
    PgConnection::connect(&server_url())
        .await
        .unwrap_or_else(|error| panic!("the shared PostgreSQL does not reply: {error}"))
}

async fn run(connection: &mut PgConnection, sql: String) {
    connection.execute(AssertSqlSafe(sql)).await.unwrap();
}

fn url_of(database: &str) -> String {
    let options = PgConnectOptions::from_str(&server_url()).unwrap().database(database);
    sqlx::ConnectOptions::to_url_lossy(&options).to_string()
}
