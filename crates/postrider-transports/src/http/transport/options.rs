//! The settings of a webhook transport.

use super::{
    guard::{self, AddressGuard},
    status::StatusClassifier,
    target::Targets,
    tls, wire,
};
use crate::http::signature::Secret;
use postrider_core::Invalid;
use reqwest::header::HeaderMap;
use rustls::pki_types::CertificateDer;
use std::{collections::BTreeSet, fmt, net::IpAddr, time::Duration};

/// The settings of an [`HttpTransport`](super::HttpTransport).
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
    pub(super) guard: AddressGuard,
    pub(super) secrets: Vec<Secret>,
    pub(super) headers: HeaderMap,
    pub(super) classifier: StatusClassifier,
    pub(super) timeout: Duration,
    pub(super) connect_timeout: Duration,
    pub(super) concurrency: usize,
    pub(super) batch: usize,
    pub(super) roots: Vec<CertificateDer<'static>>,
}

impl HttpOptions {
    /// Destinations are whole URLs, of any number of hosts.
    ///
    /// A placeholder in the host of an address, such as `https://{tenant}.shop.example/`, lets messages choose the host that they are
    /// sent to. If that is not intended, use placeholders in the path only.
    pub fn new() -> Self {
        Self {
            targets: Targets::default(),
            guard: AddressGuard::default(),
            secrets: Vec::new(),
            headers: HeaderMap::new(),
            classifier: StatusClassifier {
                accepted: BTreeSet::new(),
                rejected: BTreeSet::new(),
                max_retry_after: Duration::from_secs(60 * 60),
            },
            timeout: Duration::from_secs(10),
            connect_timeout: Duration::from_secs(5),
            concurrency: 16,
            batch: 64,
            roots: Vec::new(),
        }
    }

    /// Destinations are paths below this base URL, with or without a query. No value of a message leads out of it.
    ///
    /// # Errors
    /// If `base` is not a URL.
    pub fn below(base: &str) -> Result<Self, Invalid> {
        Ok(Self { targets: Targets::below(base)?, ..Self::new() })
    }

    /// Signs messages with this secret. Set several during a rotation: each message then carries a signature by each.
    pub fn with_secret(mut self, secret: Secret) -> Self {
        self.secrets.push(secret);
        self
    }

    /// Sends this header with every message, such as `authorization`. Its value is never logged or printed.
    ///
    /// # Errors
    /// If it is not a valid HTTP header, or one that the transport writes itself.
    pub fn with_header(mut self, name: &str, value: &str) -> Result<Self, Invalid> {
        let wrong = |rule: String| Invalid::rule("header", rule);
        let header = wire::name(name).map_err(wrong)?;
        if !wire::may_be_configured(&header) {
            return Err(wrong(format!("{name} is written by the transport itself; remove it")));
        }
        let mut value = wire::value(name, value).map_err(wrong)?;
        value.set_sensitive(true);
        self.headers.insert(header, value);
        Ok(self)
    }

    /// Timeout of each message, including its wait for the concurrency limit of its host. Default: 10 seconds. Keep it below the
    /// timeout of the relay's destination; otherwise one slow message costs its whole batch their results.
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Connect timeout: name resolution, connection and TLS together. Default: 5 seconds.
    pub fn with_connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// Concurrency: the most requests in flight to one host. Default: 16.
    pub fn with_concurrency(mut self, requests: usize) -> Self {
        self.concurrency = requests;
        self
    }

    /// Batch size: the most messages in one call. Default: 64.
    pub fn with_batch_size(mut self, messages: usize) -> Self {
        self.batch = messages;
        self
    }

    /// The longest `Retry-After` that is obeyed. Default: an hour.
    pub fn with_longest_wait(mut self, longest: Duration) -> Self {
        self.classifier.max_retry_after = longest;
        self
    }

    /// Treats this status as a success, too, such as 404 for a message that asks to delete something.
    ///
    /// # Errors
    /// If the status is not between 400 and 499.
    pub fn with_accepted(mut self, status: u16) -> Result<Self, Invalid> {
        if !(400..500).contains(&status) {
            let rule = format!("{status} cannot be configured as a success; use a status from 400 to 499");
            return Err(Invalid::rule("status", rule));
        }
        self.classifier.accepted.insert(status);
        Ok(self)
    }

    /// Treats this status as a permanent rejection, such as 422 if receivers define it so. A success cannot be one.
    ///
    /// # Errors
    /// If the status is not between 300 and 599.
    pub fn with_rejected(mut self, status: u16) -> Result<Self, Invalid> {
        if !(300..600).contains(&status) {
            return Err(Invalid::rule(
                "status",
                format!("{status} cannot be configured as a rejection; use a status from 300 to 599"),
            ));
        }
        self.classifier.rejected.insert(status);
        Ok(self)
    }

    /// Static addresses of `host`, used instead of DNS. They are checked like any other address.
    pub fn with_addresses(mut self, host: &str, addresses: impl IntoIterator<Item = IpAddr>) -> Self {
        self.guard.static_addresses.insert(host.to_ascii_lowercase(), addresses.into_iter().collect());
        self
    }

    /// CA bundle (PEM text), trusted in addition to the system roots.
    ///
    /// # Errors
    /// If the text contains no certificate.
    pub fn trust(mut self, pem: &str) -> Result<Self, Invalid> {
        self.roots.extend(tls::certificates(pem)?);
        Ok(self)
    }

    /// Allows http, which is not encrypted.
    pub fn allow_http(mut self) -> Self {
        self.targets.allows_http = true;
        self
    }

    /// Allows `host`, a name or an address, even if it is not public.
    pub fn allow_host(mut self, host: &str) -> Self {
        self.guard.hosts.insert(guard::bare(host).to_ascii_lowercase());
        self
    }

    /// Allows the addresses of `network`, such as `10.0.0.0/8`, `fd00::/8` or a single address.
    ///
    /// # Errors
    /// If it is not a network.
    pub fn allow_network(mut self, network: &str) -> Result<Self, Invalid> {
        self.guard.allow_network(network)?;
        Ok(self)
    }

    pub(super) fn check(&self) -> Result<(), Invalid> {
        let wrong = |field: &'static str, rule: &str| Err(Invalid::rule(field, rule.to_owned()));
        if self.timeout.is_zero() || self.connect_timeout.is_zero() {
            return wrong("timeout", "is zero: no message could be sent; set a longer one");
        }
        if self.concurrency == 0 || self.batch == 0 {
            return wrong("batch", "concurrency or batch is 0: no message would be sent; set at least 1");
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
    /// Omits URLs, secrets and headers: any of them may be secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpOptions")
            .field("secrets", &self.secrets.len())
            .field("timeout", &self.timeout)
            .field("concurrency", &self.concurrency)
            .field("batch", &self.batch)
            .finish_non_exhaustive()
    }
}
