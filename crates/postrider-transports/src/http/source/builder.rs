//! The settings of a webhook source.

use super::{HttpSource, pending_requests::PendingRequests};
use crate::http::signature::{Secret, TOLERANCE};
use postrider_core::Invalid;
use std::{
    fmt,
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

/// The settings of an [`HttpSource`]; see [`HttpSource::builder`].
#[derive(Clone)]
#[must_use = "settings do nothing until a source is built"]
pub struct HttpSourceBuilder {
    path: String,
    is_unsigned: bool,
    settings: Settings,
    in_flight: usize,
}

/// The settings that apply to each request.
#[derive(Clone)]
pub(super) struct Settings {
    /// Without secrets, unsigned requests are accepted.
    pub(super) secrets: Vec<Secret>,
    pub(super) tolerance: Duration,
    pub(super) max_bytes: usize,
    pub(super) read_timeout: Duration,
    pub(super) resend_window: Option<Duration>,
}

impl HttpSourceBuilder {
    pub(super) fn new(path: String) -> Self {
        let settings = Settings {
            secrets: Vec::new(),
            tolerance: TOLERANCE,
            max_bytes: 1024 * 1024,
            read_timeout: Duration::from_secs(30),
            resend_window: None,
        };
        Self { path, is_unsigned: false, settings, in_flight: 256 }
    }

    /// Accepts requests that were signed with this secret. Set several during a rotation, or one for each sender.
    pub fn with_secret(mut self, secret: Secret) -> Self {
        self.settings.secrets.push(secret);
        self
    }

    /// Accepts unsigned requests from **everybody**. Only for a network that nobody else can reach, or behind a gateway that authenticates the
    /// sender.
    pub fn without_signatures(mut self) -> Self {
        self.is_unsigned = true;
        self
    }

    /// Tolerance: how far the timestamp of a request may differ from this clock, in either direction. Default: 5 minutes. A captured
    /// request can be replayed for this time.
    pub fn with_tolerance(mut self, tolerance: Duration) -> Self {
        self.settings.tolerance = tolerance;
        self
    }

    /// Maximum body size in bytes. Default: 1 MiB.
    pub fn with_max_bytes(mut self, bytes: usize) -> Self {
        self.settings.max_bytes = bytes;
        self
    }

    /// Read timeout of a body. Default: 30 seconds.
    pub fn with_read_timeout(mut self, timeout: Duration) -> Self {
        self.settings.read_timeout = timeout;
        self
    }

    /// The most requests that wait for their ack at the same time, received by a consumer or not. Default: 256. Further requests get
    /// status 503 with `Retry-After`.
    pub fn with_max_in_flight(mut self, requests: usize) -> Self {
        self.in_flight = requests;
        self
    }

    /// How long senders retry a request that was not acked. The protocol does not say; without this setting the redelivery window is
    /// unbounded.
    pub fn with_resend_window(mut self, longest: Duration) -> Self {
        self.settings.resend_window = Some(longest);
        self
    }

    /// Validates the settings and creates the source. Mount its [`router`](HttpSource::router).
    ///
    /// # Errors
    /// Names the invalid setting.
    pub fn build(self) -> Result<HttpSource, Invalid> {
        let wrong = |field: &'static str, rule: &str| Err(Invalid::rule(field, rule.to_owned()));
        if !is_path(&self.path) {
            return wrong("path", "write it like /hooks/orders, with letters, digits, - . _ ~ and / only");
        }
        if self.settings.secrets.is_empty() && !self.is_unsigned {
            return wrong(
                "secret",
                "is missing: anybody could send; set one with `with_secret`, or call `without_signatures`",
            );
        }
        if !self.settings.secrets.is_empty() && self.is_unsigned {
            return wrong("secret", "is set together with `without_signatures`; remove one of the two");
        }
        if self.settings.max_bytes == 0 || self.in_flight == 0 {
            return wrong(
                "in_flight",
                "in_flight or max_bytes is 0: no message would be received; set at least 1",
            );
        }
        if self.settings.read_timeout.is_zero() || self.settings.tolerance.as_secs() == 0 {
            return wrong(
                "tolerance",
                "tolerance or read_timeout is below a second: every request would be too late; set at least a second",
            );
        }
        let (path, pending) = (self.path.into(), PendingRequests::new(self.in_flight));
        Ok(HttpSource {
            path,
            settings: Arc::new(self.settings),
            pending,
            is_mounted: AtomicBool::new(false),
        })
    }
}

/// Whether the path contains no character that the router reads as a pattern.
fn is_path(path: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte);
    path.starts_with('/') && path.bytes().all(is_plain)
}

impl fmt::Debug for HttpSourceBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpSourceBuilder")
            .field("path", &self.path)
            .field("in_flight", &self.in_flight)
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("secrets", &self.secrets.len())
            .field("tolerance", &self.tolerance)
            .field("max_bytes", &self.max_bytes)
            .finish_non_exhaustive()
    }
}
