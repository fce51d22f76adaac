//! The settings of an SQS source.

use super::{MAX_VISIBILITY_TIMEOUT, SqsSource, connection::QueueConnection};
use crate::{
    aws::AwsOptions,
    byte_budget::{ByteBudget, MAX_BYTES_IN_FLIGHT},
    sqs::client::{is_name, is_url, name_error},
};
use postrider_core::Invalid;
use std::time::Duration;

/// The limit of SQS for long polling.
const MAX_WAIT: Duration = Duration::from_secs(20);

/// The settings of an [`SqsSource`]; see [`SqsSource::builder`].
#[derive(Debug, Clone)]
#[must_use = "settings do nothing until a source is built"]
pub struct SqsSourceBuilder {
    options: AwsOptions,
    settings: Settings,
}

#[derive(Debug, Clone)]
pub(super) struct Settings {
    pub(super) queue: String,
    pub(super) visibility_timeout: Duration,
    pub(super) wait: Duration,
    pub(super) prefetch: usize,
    pub(super) concurrency: usize,
    pub(super) reject_to: Option<String>,
    pub(super) max_bytes: usize,
}

impl SqsSourceBuilder {
    pub(super) fn new(options: AwsOptions, queue: String) -> Self {
        let settings = Settings {
            queue,
            visibility_timeout: Duration::from_secs(30),
            wait: MAX_WAIT,
            prefetch: 100,
            concurrency: 8,
            reject_to: None,
            max_bytes: MAX_BYTES_IN_FLIGHT,
        };
        Self { options, settings }
    }

    /// Visibility timeout of received messages; each extension renews it. Default: 30 seconds; maximum: 12 hours. Each request sends it, so
    /// the queue's own setting makes no difference.
    pub fn with_visibility_timeout(mut self, timeout: Duration) -> Self {
        self.settings.visibility_timeout = timeout;
        self
    }

    /// Long polling: how long a request waits for messages. Default and maximum: 20 seconds.
    pub fn with_wait(mut self, wait: Duration) -> Self {
        self.settings.wait = wait;
        self
    }

    /// Prefetch: the most messages requested ahead, ten in each request. Default: 100. Several requests run at the same time only while
    /// they return full batches.
    pub fn with_prefetch(mut self, messages: usize) -> Self {
        self.settings.prefetch = messages;
        self
    }

    /// Concurrency: the most requests in flight that ack messages. Default: 8.
    pub fn with_concurrency(mut self, concurrency: usize) -> Self {
        self.settings.concurrency = concurrency;
        self
    }

    /// Bytes in flight: the source holds messages of about this many bytes that are not acked yet, and one batch more. Default: 64 MiB.
    /// A message that is larger is received alone.
    pub fn with_max_bytes_in_flight(mut self, bytes: usize) -> Self {
        self.settings.max_bytes = bytes;
        self
    }

    /// Sends rejected messages to this queue, by name or URL, before they are deleted here: usually the dead-letter queue of the redrive
    /// policy. Default: rejected messages are deleted.
    pub fn with_reject_to(mut self, queue: impl Into<String>) -> Self {
        self.settings.reject_to = Some(queue.into());
        self
    }

    /// Validates the settings and creates the source. Credentials are loaded, and connections opened, with the first call that receives.
    ///
    /// # Errors
    /// Names the invalid setting.
    pub fn build(self) -> Result<SqsSource, Invalid> {
        let Self { options, settings } = self;
        options.check()?;
        for queue in [Some(&settings.queue), settings.reject_to.as_ref()].into_iter().flatten() {
            if !is_url(queue) && !is_name(queue) {
                return Err(Invalid::rule("queue", name_error(queue)));
            }
        }
        if settings.reject_to.as_ref() == Some(&settings.queue) {
            return Err(Invalid::rule(
                "reject_to",
                "is the queue itself: rejected messages would be redelivered; name another queue",
            ));
        }
        if settings.visibility_timeout < Duration::from_secs(1)
            || settings.visibility_timeout > MAX_VISIBILITY_TIMEOUT
        {
            return Err(Invalid::rule("visibility_timeout", "must be from 1 second to 12 hours"));
        }
        ByteBudget::check(settings.max_bytes)?;
        if settings.wait > MAX_WAIT {
            return Err(Invalid::rule("wait", "must be at most 20 seconds"));
        }
        if settings.prefetch == 0 || settings.concurrency == 0 {
            return Err(Invalid::rule("prefetch", "prefetch or concurrency is 0; set at least 1"));
        }
        Ok(SqsSource::new(QueueConnection::new(options, settings)))
    }
}
