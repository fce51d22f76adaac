//! PgBouncer in transaction mode in front of a PostgreSQL server.

use nix::sys::signal::Signal;
use postrider_servers::{Cleanup, ProcessGuard, ServerDir, TempFolder, free_ports};
use sqlx::{ConnectOptions, Connection, PgConnection, postgres::PgConnectOptions};
use std::{
    path::Path,
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
             ignore_startup_parameters = extra_float_digits\n"
        );
        let file = home.file("pgbouncer.ini", &settings).unwrap();
        let mut command = home.command(Path::new(PROGRAM), Signal::SIGKILL);
        command.arg(&file);
        let server = home.spawn(command, Signal::SIGTERM).unwrap();
        let through = target.host("127.0.0.1").port(listen);
        let mut pooler = Self { server, home, _folder: folder, url: through.to_url_lossy().to_string() };
        pooler.wait_until_ready().await;
        pooler
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
