//! The settings of a source.

use super::{LONGEST, SqsSource, link::Link};
use crate::{
    aws::AwsOptions,
    sqs::queue::{bad_name, is_name, is_url},
};
use postrider_core::Invalid;
use std::time::Duration;

/// As long as the service lets anybody wait.
const LONGEST_WAIT: Duration = Duration::from_secs(20);

/// How an [`SqsSource`] receives; see [`SqsSource::builder`].
#[derive(Debug, Clone)]
#[must_use = "settings do nothing until a source is built"]
pub struct SqsSourceBuilder {
    options: AwsOptions,
    settings: Settings,
}

#[derive(Debug, Clone)]
pub(super) struct Settings {
    pub(super) queue: String,
    pub(super) hold: Duration,
    pub(super) wait: Duration,
    pub(super) prefetch: usize,
    pub(super) requests: usize,
    pub(super) refused_to: Option<String>,
}

impl SqsSourceBuilder {
    pub(super) fn new(options: AwsOptions, queue: String) -> Self {
        let settings = Settings {
            queue,
            hold: Duration::from_secs(30),
            wait: LONGEST_WAIT,
            prefetch: 100,
            requests: 8,
            refused_to: None,
        };
        Self { options, settings }
    }

    /// Hides what was received from others for so long, and again for as long whenever it is extended; 30 seconds unless said otherwise,
    /// up to 12 hours. It is given with each request: what the queue has as its own makes no difference.
    pub fn with_visibility_timeout(mut self, timeout: Duration) -> Self {
        self.settings.hold = timeout;
        self
    }

    /// Lets a request wait for messages for so long; 20 seconds unless said otherwise, which is the most.
    pub fn with_wait(mut self, wait: Duration) -> Self {
        self.settings.wait = wait;
        self
    }

    /// Asks for so many messages at most that nobody has taken yet, ten in each request; 100 unless said otherwise. Several requests wait at
    /// once only while they come back full.
    pub fn with_prefetch(mut self, messages: usize) -> Self {
        self.settings.prefetch = messages;
        self
    }

    /// Has so many requests under way that answer; 8 unless said otherwise.
    pub fn with_requests(mut self, requests: usize) -> Self {
        self.settings.requests = requests;
        self
    }

    /// Sends what is refused to this queue, by name or URL, before it is deleted here: the dead-letter queue of the redrive policy, mostly.
    /// Without it, what is refused is deleted.
    pub fn with_refused_to(mut self, queue: impl Into<String>) -> Self {
        self.settings.refused_to = Some(queue.into());
        self
    }

    /// The source. Credentials are looked for, and connections made, when something is to be received.
    ///
    /// # Errors
    /// Names the setting that makes no sense.
    pub fn build(self) -> Result<SqsSource, Invalid> {
        let Self { options, settings } = self;
        options.check()?;
        for queue in [Some(&settings.queue), settings.refused_to.as_ref()].into_iter().flatten() {
            if !is_url(queue) && !is_name(queue) {
                return Err(Invalid::rule("queue", bad_name(queue)));
            }
        }
        if settings.refused_to.as_ref() == Some(&settings.queue) {
            return Err(Invalid::rule("refused_to", "is the queue itself; what is refused would come again"));
        }
        if settings.hold < Duration::from_secs(1) || settings.hold > LONGEST {
            return Err(Invalid::rule("visibility_timeout", "give a second at least, and 12 hours at most"));
        }
        if settings.wait > LONGEST_WAIT {
            return Err(Invalid::rule("wait", "is longer than 20 seconds; give less"));
        }
        if settings.prefetch == 0 || settings.requests == 0 {
            return Err(Invalid::rule("prefetch", "prefetch or requests is 0; give at least 1"));
        }
        Ok(SqsSource::new(Link::new(options, settings)))
    }
}
