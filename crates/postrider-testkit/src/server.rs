//! A PostgreSQL of a test's own, to stop it and start it again.

use crate::daemon::{Daemon, Home, free_port};
use nix::sys::signal::Signal;
use sqlx::{Connection, PgConnection};
use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

/// Where the test run's PostgreSQL has its programs.
pub const PROGRAMS_VARIABLE: &str = "POSTRIDER_TEST_POSTGRES_PROGRAMS";

const READY_WITHIN: Duration = Duration::from_secs(60);

/// A server that nobody else uses. Dropped, it is stopped, and its data is gone.
#[derive(Debug)]
pub struct PrivatePostgres {
    // Dropped in this order: the folder must outlive the server.
    server: Option<Daemon>,
    home: Home,
    port: u16,
}

/// How a server is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// It ends its sessions.
    Fast,
    /// It crashes, and recovers when it is started again.
    Crash,
}

impl PrivatePostgres {
    /// Starts one, of the version that the tests run on.
    ///
    /// # Panics
    /// When that is not possible.
    pub async fn start() -> Self {
        let home = Home::new("postrider-private-");
        let data = home.path("data");
        let data = data.to_str().unwrap();
        let options =
            ["--username=postgres", "--auth=trust", "--encoding=UTF8", "--no-sync", "--pgdata", data];
        home.run(&program("initdb"), &options);
        let mut server = Self { server: None, home, port: free_port() };
        server.resume().await;
        server
    }

    /// Where clients connect.
    pub fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres", self.port)
    }

    /// Its port on the loopback interface.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Stops it.
    pub fn stop(&mut self, how: Stop) {
        let signal = match how {
            Stop::Fast => Signal::SIGINT,
            Stop::Crash => Signal::SIGQUIT,
        };
        if let Some(mut server) = self.server.take() {
            server.stop(signal);
        }
    }

    /// Starts it again, at the same address, and waits until it answers.
    ///
    /// # Panics
    /// When it does not.
    pub async fn resume(&mut self) {
        let deadline = Instant::now() + READY_WITHIN;
        loop {
            // Somebody else may have had its port for a moment.
            if self.server.as_mut().is_none_or(Daemon::has_ended) {
                self.server = Some(self.spawn());
            }
            if let Ok(connection) = PgConnection::connect(&self.url()).await {
                connection.close().await.ok();
                return;
            }
            assert!(Instant::now() < deadline, "the server does not answer:\n{}", self.home.log());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    fn spawn(&self) -> Daemon {
        let mut command = self.home.command(&program("postgres"));
        command.arg("-D").arg(self.home.path("data"));
        let port = format!("port={}", self.port);
        let settings =
            ["listen_addresses=127.0.0.1", "unix_socket_directories=", "fsync=off", "shared_buffers=64MB"];
        for setting in settings.into_iter().chain([port.as_str()]) {
            command.args(["-c", setting]);
        }
        self.home.start(command, Signal::SIGINT)
    }
}

fn program(name: &str) -> PathBuf {
    let folder = std::env::var_os(PROGRAMS_VARIABLE).unwrap_or_else(|| {
        panic!("{PROGRAMS_VARIABLE} is not set: run `cargo xtask test`, which knows where PostgreSQL is")
    });
    PathBuf::from(folder).join(name)
}
