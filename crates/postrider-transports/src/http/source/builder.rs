//! The settings of a source.

use super::{HttpSource, desk::Desk};
use crate::http::signature::{Secret, TOLERANCE};
use postrider_core::Invalid;
use std::{
    fmt,
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

/// How an [`HttpSource`] receives; see [`HttpSource::builder`].
#[derive(Clone)]
#[must_use = "settings do nothing until a source is built"]
pub struct HttpSourceBuilder {
    path: String,
    is_open: bool,
    settings: Settings,
    in_hand: usize,
}

/// What a request is judged by.
#[derive(Clone)]
pub(super) struct Settings {
    /// Without any, everybody is believed.
    pub(super) secrets: Vec<Secret>,
    pub(super) tolerance: Duration,
    pub(super) most_bytes: usize,
    pub(super) read_timeout: Duration,
    pub(super) resends_for: Option<Duration>,
}

impl HttpSourceBuilder {
    pub(super) fn new(path: String) -> Self {
        let settings = Settings {
            secrets: Vec::new(),
            tolerance: TOLERANCE,
            most_bytes: 1024 * 1024,
            read_timeout: Duration::from_secs(30),
            resends_for: None,
        };
        Self { path, is_open: false, settings, in_hand: 256 }
    }

    /// Believes what was signed with this secret. Give several while they change, or one for each sender.
    pub fn with_secret(mut self, secret: Secret) -> Self {
        self.settings.secrets.push(secret);
        self
    }

    /// Believes **everybody**. Only for a network that lets nobody else in, or behind something that has verified the sender.
    pub fn without_signatures(mut self) -> Self {
        self.is_open = true;
        self
    }

    /// Lets the time of a request be so far from this clock, before and after it; 5 minutes unless said otherwise. For so long a
    /// request that somebody else got hold of can be sent again.
    pub fn with_tolerance(mut self, tolerance: Duration) -> Self {
        self.settings.tolerance = tolerance;
        self
    }

    /// Takes bodies of so many bytes at most; 1 MiB unless said otherwise.
    pub fn with_most_bytes(mut self, bytes: usize) -> Self {
        self.settings.most_bytes = bytes;
        self
    }

    /// Gives a body so long to come; 30 seconds unless said otherwise.
    pub fn with_read_timeout(mut self, timeout: Duration) -> Self {
        self.settings.read_timeout = timeout;
        self
    }

    /// Lets so many requests wait for their answers at once, taken by a consumer or not; 256 unless said otherwise. Others are told to
    /// come again.
    pub fn with_in_hand(mut self, requests: usize) -> Self {
        self.in_hand = requests;
        self
    }

    /// Says for how long senders send again what was not answered. Nothing on the wire tells; without this it is for ever.
    pub fn with_resends_for(mut self, longest: Duration) -> Self {
        self.settings.resends_for = Some(longest);
        self
    }

    /// The source. Mount its [`router`](HttpSource::router).
    ///
    /// # Errors
    /// Names the setting that makes no sense.
    pub fn build(self) -> Result<HttpSource, Invalid> {
        let wrong = |field: &'static str, rule: &str| Err(Invalid::rule(field, rule.to_owned()));
        if !is_path(&self.path) {
            return wrong("path", "write it as in /hooks/orders: letters, digits, - . _ ~ and / alone");
        }
        if self.settings.secrets.is_empty() && !self.is_open {
            return wrong(
                "secret",
                "is missing: anybody could send; give one with `with_secret`, or say `without_signatures`",
            );
        }
        if !self.settings.secrets.is_empty() && self.is_open {
            return wrong("secret", "is of no use with `without_signatures`; leave out one of the two");
        }
        if self.settings.most_bytes == 0 || self.in_hand == 0 {
            return wrong(
                "in_hand",
                "in_hand or most_bytes is 0; nothing would be received: give at least 1",
            );
        }
        if self.settings.read_timeout.is_zero() || self.settings.tolerance.as_secs() == 0 {
            return wrong(
                "tolerance",
                "tolerance or read_timeout is below a second; nothing would be in time",
            );
        }
        let (path, desk) = (self.path.into(), Desk::new(self.in_hand));
        Ok(HttpSource { path, settings: Arc::new(self.settings), desk, is_mounted: AtomicBool::new(false) })
    }
}

/// Nothing that the router would take for a pattern.
fn is_path(path: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte);
    path.starts_with('/') && path.bytes().all(is_plain)
}

impl fmt::Debug for HttpSourceBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpSourceBuilder")
            .field("path", &self.path)
            .field("in_hand", &self.in_hand)
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("secrets", &self.secrets.len())
            .field("tolerance", &self.tolerance)
            .field("most_bytes", &self.most_bytes)
            .finish_non_exhaustive()
    }
}
