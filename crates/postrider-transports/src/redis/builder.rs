//! Builder of a Redis transport.

use super::{RedisTransport, server::Server};
use crate::timeout::check_timeout;
use postrider_core::{ClientOptions, Invalid};
use std::{fmt, time::Duration};

/// Builder of a [`RedisTransport`]; [`build`](Self::build) checks the settings.
#[derive(Clone)]
#[must_use = "a builder does nothing until it is built"]
pub struct RedisBuilder {
    client: ClientOptions,
    pub(super) must_exist: bool,
    pub(super) replicas: Option<(u32, Duration)>,
}

impl RedisBuilder {
    pub(super) fn new(client: ClientOptions) -> Self {
        Self { client, must_exist: false, replicas: None }
    }

    /// Retries messages to a stream that does not exist, instead of creating it. A misspelled stream name then shows as an error, and
    /// not as a stream that no consumer reads. Create streams with their first group: `XGROUP CREATE orders billing $ MKSTREAM`.
    pub fn must_exist(mut self) -> Self {
        self.must_exist = true;
        self
    }

    /// A message is accepted only when `replicas` replicas have it, as `WAIT` reports. If fewer have it after `timeout`, the publish
    /// result is unknown, because a failover may lose the message, and it is sent again.
    pub fn with_replicas(mut self, replicas: u32, timeout: Duration) -> Self {
        self.replicas = Some((replicas, timeout));
        self
    }

    /// Checks the settings and creates the transport. It connects with the first message.
    ///
    /// # Errors
    /// Names the first invalid setting and the allowed values. The error never contains the URL, which may hold a password.
    pub fn build(self) -> Result<RedisTransport, Invalid> {
        if let Some((count, timeout)) = self.replicas
            && (count == 0 || timeout.as_millis() == 0)
        {
            let rule = "give at least one replica and a timeout of at least a millisecond; zero means no timeout in Redis";
            return Err(Invalid::rule("replicas", rule));
        }
        if let Some((_, timeout)) = self.replicas {
            check_timeout("replicas", timeout)?;
        }
        let extra = self.replicas.map(|(_, timeout)| timeout).unwrap_or_default();
        let server = Server::new(&self.client, extra)?;
        Ok(RedisTransport::with(server, self.must_exist, self.replicas))
    }
}

impl fmt::Debug for RedisBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisBuilder")
            .field("client", &self.client)
            .field("must_exist", &self.must_exist)
            .field("replicas", &self.replicas)
            .finish_non_exhaustive()
    }
}
