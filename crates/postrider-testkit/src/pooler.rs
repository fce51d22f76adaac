//! PgBouncer in transaction mode before a PostgreSQL server.

use nix::sys::signal::Signal;
use postrider_servers::{Afterwards, Folder, Guard, Home, free_ports};
use sqlx::{ConnectOptions, Connection, PgConnection, postgres::PgConnectOptions};
use std::{
    path::Path,
    str::FromStr,
    time::{Duration, Instant},
};

/// Where Debian puts it.
const PROGRAM: &str = "/usr/sbin/pgbouncer";
const READY_WITHIN: Duration = Duration::from_secs(20);

/// A pooler that lends each session of the server for one transaction at a time. Dropped, it is stopped.
#[derive(Debug)]
pub struct Pooler {
    // Dropped in this order: the folder must outlive the server.
    server: Guard,
    home: Home,
    _folder: Folder,
    url: String,
}

impl Pooler {
    /// Stands before the database at `url`, with up to `sessions` sessions for all clients together.
    ///
    /// # Panics
    /// When it cannot be started.
    pub async fn before(url: &str, sessions: u32) -> Self {
        let target = PgConnectOptions::from_str(url).unwrap();
        let (host, port) = (target.get_host(), target.get_port());
        let database = target.get_database().unwrap_or("postgres");
        let folder = Folder::create(Afterwards::Remove).unwrap();
        let home = Home::create(&folder, "pooler").unwrap();
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

    /// The way to the database through it.
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
                "PgBouncer does not answer (is the package `pgbouncer` installed?)\n{}",
                self.home.log_tail()
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}
