//! A PostgreSQL of a test's own, to stop it and start it again.

use crate::{private::Private, shared};
use postrider_servers::{Durability, Kind, Postgres};

/// A server that nobody else uses. Dropped, it is stopped, and its data is gone.
#[derive(Debug)]
pub struct PrivatePostgres {
    server: Private,
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
        Self { server: Private::start(Kind::Postgres).await }
    }

    /// The same, but it keeps what PostgreSQL promises as installed.
    ///
    /// # Panics
    /// When that is not possible.
    pub async fn start_durable() -> Self {
        let recipe = Postgres::new(&shared::programs(Kind::Postgres), Durability::Full);
        Self { server: Private::start_by(Box::new(recipe)).await }
    }

    /// Where clients connect.
    pub fn url(&self) -> String {
        self.server.url().to_owned()
    }

    /// Its port on the loopback interface.
    pub fn port(&self) -> u16 {
        self.server.port()
    }

    /// Stops it.
    ///
    /// # Panics
    /// When that is not possible.
    pub fn stop(&mut self, how: Stop) {
        match how {
            Stop::Fast => self.server.stop(),
            Stop::Crash => self.server.crash(),
        }
    }

    /// Starts it again, at the same address, and waits until it answers.
    ///
    /// # Panics
    /// When it does not.
    pub async fn resume(&mut self) {
        self.server.resume().await;
    }
}
