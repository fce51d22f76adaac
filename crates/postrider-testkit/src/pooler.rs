//! PgBouncer in transaction mode in front of a PostgreSQL server.

use nix::sys::signal::Signal;
use postrider_servers::{Cleanup, ProcessGuard, ServerDir, TempFolder, free_ports};
use sqlx::{ConnectOptions, Connection, PgConnection, postgres::PgConnectOptions};
use std::{
    path::{Path, PathBuf},
    str::FromStr,
    time::{Duration, Instant},
};

/// The path of Debian's package.
const PROGRAM: &str = "/usr/sbin/pgbouncer";
const READY_WITHIN: Duration = Duration::from_secs(20);

/// A pooler that assigns a server session for one transaction at a time. Dropping it stops it.
#[derive(Debug)]
pub struct Pooler {
    // Dropped in this order: the folder must outlive the server.
    server: ProcessGuard,
    home: ServerDir,
    _folder: TempFolder,
    settings: PathBuf,
    url: String,
}

impl Pooler {
    /// Starts a pooler in front of the database at `url`, with at most `sessions` server sessions in total.
    ///
    /// # Panics
    /// When it cannot be started.
    pub async fn before(url: &str, sessions: u32) -> Self {
        let target = PgConnectOptions::from_str(url).unwrap();
        let (host, port) = (target.get_host(), target.get_port());
        let database = target.get_database().unwrap_or("postgres");
        let folder = TempFolder::create(Cleanup::Remove).unwrap();
        let home = ServerDir::create(&folder, "pooler").unwrap();
        let listen = free_ports(1).unwrap()[0];
        let settings = format!(
            "[databases]\n{database} = host={host} port={port} dbname={database} user=postgres\n\
             [pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {listen}\nunix_socket_dir =\nauth_type = any\n\
             pool_mode = transaction\ndefault_pool_size = {sessions}\nmax_client_conn = 200\n\
             ignore_startup_parameters = extra_float_digits\nserver_login_retry = 1\n"
        );
        let settings = home.file("pgbouncer.ini", &settings).unwrap();
        let server = spawn(&home, &settings);
        let url = target.host("127.0.0.1").port(listen).to_url_lossy().to_string();
        let mut pooler = Self { server, home, _folder: folder, settings, url };
        pooler.wait_until_ready().await;
        pooler
    }

    /// Kills it with SIGKILL: all its sessions end.
    ///
    /// # Panics
    /// When it cannot be killed.
    pub fn kill(&mut self) {
        self.server.stop(Signal::SIGKILL).unwrap();
    }

    /// Restarts it at the same address after [`kill`](Self::kill), and waits until it is ready.
    ///
    /// # Panics
    /// When it does not become ready.
    pub async fn restart(&mut self) {
        self.server = spawn(&self.home, &self.settings);
        self.wait_until_ready().await;
    }

    /// The URL of the database through the pooler.
    pub fn url(&self) -> &str {
        &self.url
    }

    async fn wait_until_ready(&mut self) {
        let deadline = Instant::now() + READY_WITHIN;
        loop {
            if let Ok(connection) = PgConnection::connect(&self.url).await {
                connection.close().await.ok();
                return;
            }
            let is_late = Instant::now() >= deadline || self.server.exited().unwrap().is_some();
            assert!(
                !is_late,
                "PgBouncer does not reply (is the package `pgbouncer` installed?)\n{}",
                self.home.log_tail()
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

fn spawn(home: &ServerDir, settings: &Path) -> ProcessGuard {
    let mut command = home.command(Path::new(PROGRAM), Signal::SIGKILL);
    command.arg(settings);
    home.spawn(command, Signal::SIGTERM).unwrap()
}
