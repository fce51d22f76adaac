//! What a connection to Redis needs.

use super::{RedisTransport, server::ServerOptions};
use crate::timeout::check_timeout;
use postrider_core::Invalid;
use std::{fmt, path::PathBuf, time::Duration};

/// Collects what a transport to Redis needs; [`build`](Self::build) checks it all.
#[derive(Clone)]
#[must_use = "a builder does nothing until it is built"]
pub struct RedisBuilder {
    server: ServerOptions,
    pub(super) must_exist: bool,
    pub(super) replicas: Option<(u32, Duration)>,
}

impl RedisBuilder {
    pub(super) fn new(url: String) -> Self {
        Self { server: ServerOptions::new(url), must_exist: false, replicas: None }
    }

    /// Refuses, for now, what goes to a stream that does not exist, instead of making it. Then a typing error in a name is told and
    /// not filled with messages that nobody reads. Streams are made with their first reader:
    /// `XGROUP CREATE orders billing $ MKSTREAM`.
    pub fn must_exist(mut self) -> Self {
        self.must_exist = true;
        self
    }

    /// A message counts as accepted when so many replicas have it, too, as `WAIT` tells. Where fewer do after `timeout`, nobody knows
    /// what a failover would keep, and it is sent again.
    pub fn with_replicas(mut self, replicas: u32, timeout: Duration) -> Self {
        self.replicas = Some((replicas, timeout));
        self
    }

    /// Trusts the certificates in this file of the format PEM, instead of those of the system.
    pub fn with_root_certificates(mut self, file: impl Into<PathBuf>) -> Self {
        self.server.root_certificates = Some(file.into());
        self
    }

    /// What is not answered after so long may have arrived, or not; 10 seconds unless said otherwise. Waiting for replicas comes
    /// on top. The relay's own timeout holds besides.
    pub fn with_answer_timeout(mut self, timeout: Duration) -> Self {
        self.server.answer_timeout = timeout;
        self
    }

    /// Gives the server so long to answer a new connection; 5 seconds unless said otherwise.
    pub fn with_connect_timeout(mut self, timeout: Duration) -> Self {
        self.server.connect_timeout = timeout;
        self
    }

    /// Checks everything and makes the transport. It connects with the first message.
    ///
    /// # Errors
    /// Names the first setting that makes no sense, and says what does. It never shows the URL, which may hold a password.
    pub fn build(self) -> Result<RedisTransport, Invalid> {
        if let Some((count, timeout)) = self.replicas
            && (count == 0 || timeout.as_millis() == 0)
        {
            let rule = "give at least one, and at least a millisecond: to Redis, none means for ever";
            return Err(Invalid::rule("replicas", rule));
        }
        if let Some((_, timeout)) = self.replicas {
            check_timeout("replicas", timeout)?;
        }
        let waits = self.replicas.map(|(_, timeout)| timeout).unwrap_or_default();
        let server = self.server.server(waits)?;
        Ok(RedisTransport::with(server, self.must_exist, self.replicas))
    }
}

impl fmt::Debug for RedisBuilder {
    /// Shows no URL: it may hold a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisBuilder")
            .field("must_exist", &self.must_exist)
            .field("replicas", &self.replicas)
            .finish_non_exhaustive()
    }
}
