//! A PostgreSQL primary with a streaming standby, and the failover from one to the other.
//!
//! Clients connect to an address that moves at the failover, as a virtual IP address or a DNS name does. The standby replicates through a
//! proxy, so that a test decides how much of the primary's data it has. After a failover the former primary can become the new standby.

use crate::{
    private_server::PrivateServer,
    proxy::{Fault, FaultProxy},
    shared,
};
use postrider_servers::{Durability, Kind, Postgres};
use sqlx::{Connection, Executor, PgConnection};
use std::{mem, path::Path, time::Duration};
use tokio::time::{sleep, timeout};

const PATIENCE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(20);

/// What a commit on the primary waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replication {
    /// The standby has written the commit: a failover loses nothing.
    Synchronous,
    /// Nothing: a failover loses the commits that have not reached the standby.
    Asynchronous,
}

/// A primary and its standby. Dropping them stops both and removes their data.
#[derive(Debug)]
pub struct FailoverPair {
    primary: PrivateServer,
    standby: PrivateServer,
    /// Between the standby and the primary.
    replication: FaultProxy,
    /// Between the clients and the current primary.
    address: FaultProxy,
    mode: Replication,
}

impl FailoverPair {
    /// Starts both servers, and returns when the standby streams.
    ///
    /// # Panics
    /// When they cannot be started.
    pub async fn start(replication: Replication) -> Self {
        let mut primary = PrivateServer::start_by(Box::new(spec())).await;
        let proxy = FaultProxy::before(&server(&primary)).await;
        let standby = copy(&mut primary, &proxy).await;
        let address = FaultProxy::before(&server(&primary)).await;
        let pair = Self { primary, standby, replication: proxy, address, mode: replication };
        pair.replicate().await;
        pair
    }

    /// The URL for clients, of the database `postgres` on the current primary.
    pub fn url(&self) -> String {
        format!("postgres://postgres@{}/postgres", self.address.address())
    }

    /// The standby receives nothing from now on: it lags behind.
    pub fn hold_replication(&self) {
        self.replication.set(Fault::Stall);
    }

    /// The primary crashes, and stays down until [`recover`](Self::recover).
    pub fn crash(&mut self) {
        self.primary.crash();
    }

    /// Restarts the primary after a crash, and returns when it is ready.
    ///
    /// # Panics
    /// When it does not become ready.
    pub async fn recover(&mut self) {
        self.primary.resume().await;
    }

    /// The primary crashes. The address of the clients leads to the standby, which is read-only for a while, and is then promoted.
    ///
    /// # Panics
    /// When the standby cannot be promoted.
    pub async fn fail_over(&mut self) {
        if self.mode == Replication::Synchronous {
            // A primary that has just recovered shows commits that the standby does not have yet.
            self.wait_for_standby().await;
        }
        self.primary.crash();
        self.replication.set(Fault::Refuse);
        self.address.redirect(&server(&self.standby));
        self.address.cut();
        let reached = self.address.counts().connections;
        // Clients have seen the read-only standby.
        self.address.until(|counts| counts.connections >= reached + 3).await;
        let mut admin = connect(&self.standby).await;
        let is_promoted: bool =
            sqlx::query_scalar("select pg_promote()").fetch_one(&mut admin).await.unwrap();
        assert!(is_promoted, "the standby was not promoted");
        mem::swap(&mut self.primary, &mut self.standby);
    }

    /// After a failover: gives the primary a new standby, in place of the former primary. The primary restarts for it.
    ///
    /// # Panics
    /// When one of them does not become ready.
    pub async fn rebuild_standby(&mut self) {
        self.replication.redirect(&server(&self.primary));
        self.replication.set(Fault::None);
        self.standby = copy(&mut self.primary, &self.replication).await;
        self.replicate().await;
    }

    /// Keeps the data of both servers when they are stopped, and returns the folder of the primary.
    pub fn keep(&mut self) -> &Path {
        self.standby.keep();
        self.primary.keep();
        self.primary.folder()
    }

    /// From now on a commit waits for the standby, if it has to.
    async fn replicate(&self) {
        if self.mode == Replication::Synchronous {
            let mut admin = connect(&self.primary).await;
            admin.execute("alter system set synchronous_standby_names = 'standby'").await.unwrap();
            admin.execute("select pg_reload_conf()").await.unwrap();
        }
        self.wait_for_standby().await;
    }

    async fn wait_for_standby(&self) {
        let state = if self.mode == Replication::Synchronous { "sync" } else { "async" };
        let streaming = "select from pg_stat_replication where state = 'streaming' and sync_state = $1";
        let mut admin = connect(&self.primary).await;
        let waiting = async {
            while sqlx::query(streaming).bind(state).fetch_all(&mut admin).await.unwrap().is_empty() {
                sleep(POLL).await;
            }
        };
        timeout(PATIENCE, waiting).await.expect("the standby does not stream");
    }
}

fn spec() -> Postgres {
    Postgres::new(&shared::programs(Kind::Postgres), Durability::Relaxed)
}

/// A standby with a copy of the data of a primary, which restarts. The copy of a stopped server is complete, and needs no program that
/// a test machine may lack.
async fn copy(primary: &mut PrivateServer, replication: &FaultProxy) -> PrivateServer {
    primary.stop();
    let standby = spec().standby_of(primary.folder(), replication.address().port());
    let standby = PrivateServer::start_by(Box::new(standby)).await;
    primary.resume().await;
    standby
}

fn server(server: &PrivateServer) -> String {
    format!("127.0.0.1:{}", server.port())
}

async fn connect(server: &PrivateServer) -> PgConnection {
    PgConnection::connect(server.url()).await.unwrap()
}
