//! Builder of a NATS source.

use super::NatsSource;
use crate::{
    byte_budget::{ByteBudget, MAX_BYTES_IN_FLIGHT},
    nats::builder::{NatsBuilder, check_name},
    session::Session,
    timeout::check_timeout,
};
use postrider_core::{ClientOptions, Invalid};
use std::{fmt, time::Duration};

/// The server's default `ack_wait`.
const ACK_WAIT: Duration = Duration::from_secs(30);

/// Builder of a [`NatsSource`]; [`build`](Self::build) checks the settings.
#[derive(Clone)]
#[must_use = "a builder does nothing until it is built"]
pub struct NatsSourceBuilder {
    options: NatsBuilder,
    stream: String,
    durable: String,
    consumer_spec: Option<ConsumerSpec>,
    batch_size: usize,
    max_bytes: usize,
}

/// How a missing consumer is created.
#[derive(Debug, Clone)]
pub(super) struct ConsumerSpec {
    pub(super) subject: String,
    pub(super) ack_wait: Duration,
}

impl NatsSourceBuilder {
    pub(super) fn new(client: ClientOptions, stream: String, durable: String) -> Self {
        Self {
            options: NatsBuilder::new(client),
            stream,
            durable,
            consumer_spec: None,
            batch_size: 250,
            max_bytes: MAX_BYTES_IN_FLIGHT,
        }
    }

    /// Creates the consumer if it does not exist: for this subject of the stream, which may have wildcards (`>` is all of them), from
    /// the oldest message on, with explicit acks, redelivery after `ack_wait` and no delivery limit. An existing consumer is not
    /// changed.
    pub fn with_created_consumer(mut self, subject: impl Into<String>, ack_wait: Duration) -> Self {
        self.consumer_spec = Some(ConsumerSpec { subject: subject.into(), ack_wait });
        self
    }

    /// Batch size of a pull request. Default: 250.
    pub fn with_batch_size(mut self, messages: usize) -> Self {
        self.batch_size = messages;
        self
    }

    /// Bytes in flight: the source holds messages of about this many bytes that are not acked yet, and one batch more. Default: 64 MiB.
    /// A message that is larger is received alone.
    pub fn with_max_bytes_in_flight(mut self, bytes: usize) -> Self {
        self.max_bytes = bytes;
        self
    }

    /// Authenticates with the seed of an nkey.
    pub fn with_nkey(mut self, seed: impl Into<String>) -> Self {
        self.options = self.options.with_nkey(seed);
        self
    }

    /// Authenticates with the content of a credentials file, which holds a JWT and a seed.
    pub fn with_credentials(mut self, credentials: impl Into<String>) -> Self {
        self.options = self.options.with_credentials(credentials);
        self
    }

    /// Checks the settings and creates the source. It connects with the first receive.
    ///
    /// # Errors
    /// Names the first invalid setting and the allowed values. The error never contains the URL, which may hold a password.
    pub fn build(self) -> Result<NatsSource, Invalid> {
        let options = self.options.validate()?;
        check_name("stream", &self.stream)?;
        check_name("consumer", &self.durable)?;
        if !(1..=100_000).contains(&self.batch_size) {
            return Err(Invalid::rule("batch_size", "must be between 1 and 100,000"));
        }
        ByteBudget::check(self.max_bytes)?;
        if let Some(consumer_spec) = &self.consumer_spec {
            check_timeout("ack_wait", consumer_spec.ack_wait)?;
            if consumer_spec.subject.is_empty() || consumer_spec.subject.contains(char::is_whitespace) {
                return Err(Invalid::rule(
                    "subject",
                    "is not a valid subject; give one of the stream, or > for all of them",
                ));
            }
        }
        let ack_wait = self.consumer_spec.as_ref().map_or(ACK_WAIT, |consumer_spec| consumer_spec.ack_wait);
        // To connect, and to query or create the consumer.
        let session = Session::new(options.connect_timeout() + options.request_timeout * 4);
        Ok(NatsSource {
            options,
            stream: self.stream,
            durable: self.durable,
            consumer_spec: self.consumer_spec,
            batch_size: self.batch_size,
            ack_deadline: u64::try_from(ack_wait.as_nanos()).unwrap_or(u64::MAX).into(),
            in_flight: Default::default(),
            budget: ByteBudget::new(self.max_bytes),
            session,
        })
    }
}

impl fmt::Debug for NatsSourceBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NatsSourceBuilder")
            .field("options", &self.options)
            .field("stream", &self.stream)
            .field("durable", &self.durable)
            .field("consumer_spec", &self.consumer_spec)
            .field("batch_size", &self.batch_size)
            .finish()
    }
}
