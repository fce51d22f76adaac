//! What receiving from NATS needs.

use super::NatsSource;
use crate::{
    nats::builder::{NatsBuilder, check_name},
    timeout::check_timeout,
};
use postrider_core::Invalid;
use std::{fmt, path::PathBuf, time::Duration};

/// What the server does where nothing is said.
const ACK_WAIT: Duration = Duration::from_secs(30);

/// Collects what receiving from NATS needs; [`build`](Self::build) checks it all.
#[derive(Clone)]
#[must_use = "a builder does nothing until it is built"]
pub struct NatsSourceBuilder {
    connection: NatsBuilder,
    stream: String,
    durable: String,
    created: Option<Created>,
    pull: usize,
}

/// How a consumer is made that is not there.
#[derive(Debug, Clone)]
pub(super) struct Created {
    pub(super) subject: String,
    pub(super) ack_wait: Duration,
}

impl NatsSourceBuilder {
    pub(super) fn new(url: String, stream: String, durable: String) -> Self {
        Self { connection: NatsBuilder::new(url), stream, durable, created: None, pull: 250 }
    }

    /// Makes the consumer where it is not there: for this subject of the stream, which may have wildcards (`>` is all of them), from
    /// the oldest message on, with explicit acknowledgements, delivered again after `ack_wait`, as often as it takes. One that is there
    /// stays as it is.
    pub fn with_created_consumer(mut self, subject: impl Into<String>, ack_wait: Duration) -> Self {
        self.created = Some(Created { subject: subject.into(), ack_wait });
        self
    }

    /// Asks for at most so many messages at once; 250 unless said otherwise.
    pub fn with_pull(mut self, messages: usize) -> Self {
        self.pull = messages;
        self
    }

    /// Says who it is with a token.
    pub fn with_token(mut self, token: impl Into<String>) -> Self {
        self.connection = self.connection.with_token(token);
        self
    }

    /// Says who it is with the seed of an nkey.
    pub fn with_nkey(mut self, seed: impl Into<String>) -> Self {
        self.connection = self.connection.with_nkey(seed);
        self
    }

    /// Says who it is with the text of a credentials file, which holds a JWT and a seed.
    pub fn with_credentials(mut self, credentials: impl Into<String>) -> Self {
        self.connection = self.connection.with_credentials(credentials);
        self
    }

    /// Trusts the certificates in this file of the format PEM, instead of those of the system.
    pub fn with_root_certificates(mut self, file: impl Into<PathBuf>) -> Self {
        self.connection = self.connection.with_root_certificates(file);
        self
    }

    /// Shows this certificate; both files have the format PEM.
    pub fn with_client_certificate(
        mut self,
        certificate: impl Into<PathBuf>,
        key: impl Into<PathBuf>,
    ) -> Self {
        self.connection = self.connection.with_client_certificate(certificate, key);
        self
    }

    /// Waits so long for the server to confirm an answer, or to say anything at all; 10 seconds unless said otherwise.
    pub fn with_ack_timeout(mut self, timeout: Duration) -> Self {
        self.connection = self.connection.with_ack_timeout(timeout);
        self
    }

    /// Gives each server so long to answer a new connection; 5 seconds unless said otherwise.
    pub fn with_connect_timeout(mut self, timeout: Duration) -> Self {
        self.connection = self.connection.with_connect_timeout(timeout);
        self
    }

    /// Checks everything and makes the source. It connects when it first receives.
    ///
    /// # Errors
    /// Names the first setting that makes no sense, and says what does. It never shows the URL, which may hold a password.
    pub fn build(self) -> Result<NatsSource, Invalid> {
        let connection = self.connection.checked()?;
        check_name("stream", &self.stream)?;
        check_name("consumer", &self.durable)?;
        if !(1..=100_000).contains(&self.pull) {
            return Err(Invalid::rule("pull", "give at least 1, and at most 100,000"));
        }
        if let Some(created) = &self.created {
            check_timeout("ack_wait", created.ack_wait)?;
            if created.subject.is_empty() || created.subject.contains(char::is_whitespace) {
                return Err(Invalid::rule(
                    "subject",
                    "is none; give one of the stream, or > for all of them",
                ));
            }
        }
        let ack_wait = self.created.as_ref().map_or(ACK_WAIT, |created| created.ack_wait);
        Ok(NatsSource {
            connection,
            stream: self.stream,
            durable: self.durable,
            created: self.created,
            pull: self.pull,
            holds_for: u64::try_from(ack_wait.as_nanos()).unwrap_or(u64::MAX).into(),
            in_hand: Default::default(),
            current: Default::default(),
            is_closed: Default::default(),
        })
    }
}

impl fmt::Debug for NatsSourceBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NatsSourceBuilder")
            .field("connection", &self.connection)
            .field("stream", &self.stream)
            .field("durable", &self.durable)
            .field("created", &self.created)
            .field("pull", &self.pull)
            .finish()
    }
}
