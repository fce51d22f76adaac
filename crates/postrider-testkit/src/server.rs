//! A private PostgreSQL of one test, which can stop and restart it.

use crate::{private_server::PrivateServer, shared};
use postrider_servers::{Durability, Kind, Postgres};
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};
use std::path::PathBuf;

/// A private PostgreSQL server. Dropping it stops the server and removes its data.
#[derive(Debug)]
pub struct PrivatePostgres {
    server: PrivateServer,
}

/// How a server is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// A fast shutdown: it ends its sessions.
    Fast,
    /// A crash: it recovers at the next start.
    Crash,
}

impl PrivatePostgres {
    /// Starts a server of the version that the tests use.
    ///
    /// # Panics
    /// When it cannot be started.
    pub async fn start() -> Self {
        Self { server: PrivateServer::start(Kind::Postgres).await }
    }

    /// Starts a server with PostgreSQL's default durability.
    ///
    /// # Panics
    /// When it cannot be started.
    pub async fn start_durable() -> Self {
        let spec = Postgres::new(&shared::programs(Kind::Postgres), Durability::Full);
        Self { server: PrivateServer::start_by(Box::new(spec)).await }
    }

    /// Starts a server with TLS, with this certificate and key.
    ///
    /// # Panics
    /// When it cannot be started.
    pub async fn start_with_tls([certificate, key]: [PathBuf; 2]) -> Self {
        let server = Self::start().await;
        let mut admin = PgConnection::connect(&server.url()).await.unwrap();
        // The server writes its files itself: they must belong to its account, which may be another.
        for (file, program) in
            [(certificate, "umask 077; cat > server.crt"), (key, "umask 077; cat > server.key")]
        {
            let lines = std::fs::read_to_string(file).unwrap().replace('\n', "'), ('");
            let copy = format!("copy (values ('{lines}')) to program '{program}'");
            admin.execute(AssertSqlSafe(copy)).await.unwrap();
        }
        admin.execute("alter system set ssl = on").await.unwrap();
        admin.execute("select pg_reload_conf()").await.unwrap();
        // Sessions that begin before the reload have no TLS.
        let required = format!("{}?sslmode=require", server.url());
        while PgConnection::connect(&required).await.is_err() {
            tokio::task::yield_now().await;
        }
        server
    }

    /// The URL for clients.
    pub fn url(&self) -> String {
        self.server.url().to_owned()
    }

    /// The port on the loopback interface.
    pub fn port(&self) -> u16 {
        self.server.port()
    }

    /// Stops it.
    ///
    /// # Panics
    /// When it cannot be stopped.
    pub fn stop(&mut self, how: Stop) {
        match how {
            Stop::Fast => self.server.stop(),
            Stop::Crash => self.server.crash(),
        }
    }

    /// Restarts it at the same address, and waits until it is ready.
    ///
    /// # Panics
    /// When it does not become ready.
    pub async fn resume(&mut self) {
        self.server.resume().await;
    }
}
