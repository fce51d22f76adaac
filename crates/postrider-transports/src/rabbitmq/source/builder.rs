//! What receiving from RabbitMQ needs.

use super::{RabbitMqSource, reading::Reading};
use crate::{
    rabbitmq::{broker::BrokerOptions, line::Lines},
    timeout::check_timeout,
};
use lapin::types::ShortString;
use postrider_core::Invalid;
use std::{fmt, path::PathBuf, time::Duration};

/// Collects what receiving from RabbitMQ needs; [`build`](Self::build) checks it all.
#[derive(Clone)]
#[must_use = "a builder does nothing until it is built"]
pub struct RabbitMqSourceBuilder {
    broker: BrokerOptions,
    queue: String,
    prefetch: u16,
    is_quorum: bool,
    prefix: Option<String>,
    connect_within: Duration,
}

impl RabbitMqSourceBuilder {
    pub(super) fn new(url: String, queue: String) -> Self {
        Self {
            broker: BrokerOptions::new(url),
            queue,
            prefetch: 250,
            is_quorum: false,
            prefix: None,
            connect_within: Duration::from_secs(10),
        }
    }

    /// Has up to so many messages in hand or on the way that were not answered; 250 unless said otherwise. The broker sends no more
    /// before.
    pub fn with_prefetch(mut self, messages: u16) -> Self {
        self.prefetch = messages;
        self
    }

    /// Says whether it is a quorum queue; it is not unless said otherwise. Only those count deliveries, and AMQP does not tell one from
    /// the other. The [check](postrider_core::Source::check) finds a wrong word.
    pub fn with_quorum(mut self, is_quorum: bool) -> Self {
        self.is_quorum = is_quorum;
        self
    }

    /// What the names of CloudEvents attributes begin with, besides `ce-`, `cloudEvents:` and `cloudEvents_`, which are known anyway.
    pub fn with_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = Some(prefix.into());
        self
    }

    /// Trusts the certificates in this file of the format PEM, instead of Mozilla's, which are compiled in.
    pub fn with_root_certificates(mut self, file: impl Into<PathBuf>) -> Self {
        self.broker.root_certificates = Some(file.into());
        self
    }

    /// Shows this certificate; both files have the format PEM.
    pub fn with_client_certificate(
        mut self,
        certificate: impl Into<PathBuf>,
        key: impl Into<PathBuf>,
    ) -> Self {
        self.broker.client_certificate = Some((certificate.into(), key.into()));
        self
    }

    /// Waits so long for a connection, a channel, a reply and the goodbye; 10 seconds unless said otherwise.
    pub fn with_connect_timeout(mut self, within: Duration) -> Self {
        self.connect_within = within;
        self
    }

    /// Checks everything, and makes the source. It connects when it first receives.
    ///
    /// # Errors
    /// Names the first setting that makes no sense, and says what does. It never shows the URL, which may hold a password.
    pub fn build(self) -> Result<RabbitMqSource, Invalid> {
        let broker = self.broker.broker()?;
        let queue = ShortString::try_new(self.queue.as_str()).ok().filter(|name| !name.as_str().is_empty());
        let Some(queue) = queue else {
            return Err(Invalid::rule("queue", "must have a name of 1 to 255 bytes"));
        };
        if self.prefetch == 0 {
            return Err(Invalid::rule("prefetch", "is zero, which AMQP takes for no limit; give at least 1"));
        }
        if self.prefix.as_ref().is_some_and(String::is_empty) {
            return Err(Invalid::rule(
                "prefix",
                "is empty: every header would be an attribute; give one, such as ce-",
            ));
        }
        check_timeout("connect_timeout", self.connect_within)?;
        Ok(RabbitMqSource {
            lines: Lines::new(broker, self.connect_within),
            reading: Reading::new(self.queue, self.prefix),
            queue,
            prefetch: self.prefetch,
            is_quorum: self.is_quorum,
            answer_within: self.connect_within,
            current: Default::default(),
            opening: Default::default(),
            is_closed: Default::default(),
        })
    }
}

impl fmt::Debug for RabbitMqSourceBuilder {
    /// Without the URL: it has a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RabbitMqSourceBuilder")
            .field("queue", &self.queue)
            .field("prefetch", &self.prefetch)
            .field("is_quorum", &self.is_quorum)
            .finish_non_exhaustive()
    }
}
