//! How messages are sent.

use super::{
    answer::Reading,
    guard::{self, Guard},
    target::Targets,
    tls, wire,
};
use crate::http::signature::Secret;
use postrider_core::Invalid;
use reqwest::header::HeaderMap;
use rustls::pki_types::CertificateDer;
use std::{collections::BTreeSet, fmt, net::IpAddr, time::Duration};

/// How and where an [`HttpTransport`](super::HttpTransport) sends.
///
/// ```
/// # use postrider_transports::http::{HttpOptions, HttpTransport, signature::Secret};
/// # use std::time::Duration;
/// let options = HttpOptions::below("https://shop.example/hooks")?
///     .with_secret(Secret::parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")?)
///     .with_header("authorization", "Bearer 8f14e45f")?
///     .with_timeout(Duration::from_secs(5));
/// let transport = HttpTransport::new(options)?;
/// # Ok::<(), postrider_core::Invalid>(())
/// ```
#[derive(Clone)]
#[must_use = "options do nothing until a transport has them"]
pub struct HttpOptions {
    pub(super) targets: Targets,
    pub(super) guard: Guard,
    pub(super) secrets: Vec<Secret>,
    pub(super) headers: HeaderMap,
    pub(super) reading: Reading,
    pub(super) timeout: Duration,
    pub(super) connect_timeout: Duration,
    pub(super) at_once: usize,
    pub(super) batch: usize,
    pub(super) roots: Vec<CertificateDer<'static>>,
}

impl HttpOptions {
    /// Destinations are whole URLs, of any number of hosts.
    ///
    /// A hole of a template that stands in the host, such as `https://{tenant}.shop.example/`, lets messages choose whom they are
    /// sent to. Leave holes to the path where that is not meant.
    pub fn new() -> Self {
        Self {
            targets: Targets::default(),
            guard: Guard::default(),
            secrets: Vec::new(),
            headers: HeaderMap::new(),
            reading: Reading {
                accepted: BTreeSet::new(),
                rejected: BTreeSet::new(),
                longest_wait: Duration::from_secs(60 * 60),
            },
            timeout: Duration::from_secs(10),
            connect_timeout: Duration::from_secs(5),
            at_once: 16,
            batch: 64,
            roots: Vec::new(),
        }
    }

    /// Destinations are paths below this URL, with or without a query. Nothing in a message leads out of it.
    ///
    /// # Errors
    /// When it is no URL.
    pub fn below(base: &str) -> Result<Self, Invalid> {
        Ok(Self { targets: Targets::below(base)?, ..Self::new() })
    }

    /// Signs with this secret. Give several while they change: each message then carries a signature by each.
    pub fn with_secret(mut self, secret: Secret) -> Self {
        self.secrets.push(secret);
        self
    }

    /// Sends this header with every message, such as `authorization`. It is never shown.
    ///
    /// # Errors
    /// When HTTP has no such header, or it is one that the transport writes itself.
    pub fn with_header(mut self, name: &str, value: &str) -> Result<Self, Invalid> {
        let wrong = |rule: String| Invalid::rule("header", rule);
        let header = wire::name(name).map_err(wrong)?;
        if !wire::may_be_configured(&header) {
            return Err(wrong(format!("{name} is written by the transport itself")));
        }
        let mut value = wire::value(name, value).map_err(wrong)?;
        value.set_sensitive(true);
        self.headers.insert(header, value);
        Ok(self)
    }

    /// Gives each message so long, its wait for a turn at its host included; 10 seconds unless said otherwise. Keep it below
    /// the timeout of the relay's destination, or else no message of a batch with a slow one gets its own answer.
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Gives name, connection and TLS so long together; 5 seconds unless said otherwise.
    pub fn with_connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// Has at most so many requests under way to one host; 16 unless said otherwise.
    pub fn with_at_once(mut self, requests: usize) -> Self {
        self.at_once = requests;
        self
    }

    /// Takes at most so many messages in one call; 64 unless said otherwise.
    pub fn with_batch(mut self, messages: usize) -> Self {
        self.batch = messages;
        self
    }

    /// Obeys `Retry-After` up to so long; an hour unless said otherwise.
    pub fn with_longest_wait(mut self, longest: Duration) -> Self {
        self.reading.longest_wait = longest;
        self
    }

    /// Takes this status for a success, too, such as 404 where what is asked for is that something be gone.
    ///
    /// # Errors
    /// When it is not between 400 and 499.
    pub fn with_accepted(mut self, status: u16) -> Result<Self, Invalid> {
        if !(400..500).contains(&status) {
            let rule = format!("{status} cannot be a success as well; give one from 400 to 499");
            return Err(Invalid::rule("status", rule));
        }
        self.reading.accepted.insert(status);
        Ok(self)
    }

    /// Takes this status for a refusal for good, such as 422 where receivers promise that it means one. It cannot be a success.
    ///
    /// # Errors
    /// When it is not between 300 and 599.
    pub fn with_rejected(mut self, status: u16) -> Result<Self, Invalid> {
        if !(300..600).contains(&status) {
            return Err(Invalid::rule(
                "status",
                format!("{status} cannot be a refusal; give one from 300 to 599"),
            ));
        }
        self.reading.rejected.insert(status);
        Ok(self)
    }

    /// Does not look up `host`: it is at these addresses. They are checked like any other.
    pub fn with_addresses(mut self, host: &str, addresses: impl IntoIterator<Item = IpAddr>) -> Self {
        self.guard.known.insert(host.to_ascii_lowercase(), addresses.into_iter().collect());
        self
    }

    /// Also trusts these certificates, given as PEM, besides those of the system.
    ///
    /// # Errors
    /// When there is none.
    pub fn trust(mut self, pem: &str) -> Result<Self, Invalid> {
        self.roots.extend(tls::certificates(pem)?);
        Ok(self)
    }

    /// Also sends over http, unencrypted.
    pub fn allow_http(mut self) -> Self {
        self.targets.allows_http = true;
        self
    }

    /// Also sends to `host`, name or address, when it is not public.
    pub fn allow_host(mut self, host: &str) -> Self {
        self.guard.hosts.insert(guard::bare(host).to_ascii_lowercase());
        self
    }

    /// Also sends to addresses of `network`, such as `10.0.0.0/8`, `fd00::/8` or a single address.
    ///
    /// # Errors
    /// When it is no network.
    pub fn allow_network(mut self, network: &str) -> Result<Self, Invalid> {
        self.guard.open(network)?;
        Ok(self)
    }

    pub(super) fn check(&self) -> Result<(), Invalid> {
        let wrong = |field: &'static str, rule: &str| Err(Invalid::rule(field, rule.to_owned()));
        if self.timeout.is_zero() || self.connect_timeout.is_zero() {
            return wrong("timeout", "is zero; nothing could be sent");
        }
        if self.at_once == 0 || self.batch == 0 {
            return wrong("batch", "at_once or batch is 0; nothing would be sent: give at least 1");
        }
        self.targets.check(&self.guard)
    }
}

impl Default for HttpOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for HttpOptions {
    /// Shows no URL, no secret and no header: any of them may be secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpOptions")
            .field("secrets", &self.secrets.len())
            .field("timeout", &self.timeout)
            .field("at_once", &self.at_once)
            .field("batch", &self.batch)
            .finish_non_exhaustive()
    }
}
