//! The settings of a webhook transport.

use super::{
    guard::{self, AddressGuard},
    status::StatusClassifier,
    target::Targets,
    wire,
};
use crate::{http::signature::Secret, timeout::request_timeout};
use base64::{Engine, engine::general_purpose::STANDARD};
use postrider_core::{ClientOptions, Credentials, Invalid};
use reqwest::header::{AUTHORIZATION, HeaderMap};
use std::{collections::BTreeSet, fmt, net::IpAddr, time::Duration};

/// The settings of an [`HttpTransport`](super::HttpTransport).
///
/// ```
/// # use postrider_transports::http::{HttpOptions, HttpTransport, signature::Secret};
/// # use std::time::Duration;
/// let options = HttpOptions::below("https://shop.example/hooks")?
///     .with_secret(Secret::parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")?)
///     .with_header("x-shop", "8f14e45f")?
///     .with_longest_wait(Duration::from_secs(600));
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
    pub(super) client: ClientOptions,
    pub(super) concurrency: usize,
    pub(super) batch: usize,
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
            client: ClientOptions::default(),
            concurrency: 16,
            batch: 64,
        }
    }

    /// Destinations are paths below the URL of this client, with or without a query. No value of a message leads out of it.
    ///
    /// # Errors
    /// If the client has no URL.
    pub fn below(client: impl Into<ClientOptions>) -> Result<Self, Invalid> {
        let client = client.into();
        Ok(Self { targets: Targets::below(client.url().unwrap_or_default())?, client, ..Self::new() })
    }

    /// Certificates, credentials and timeouts for destinations that are whole URLs: a client without a URL. The credentials are sent to
    /// every receiver.
    ///
    /// The request timeout applies to each message, including its wait for the concurrency limit of its host. Keep it below the timeout of
    /// the relay's destination; otherwise one slow message costs its whole batch their results. A password is sent as basic
    /// authentication, a token as `Bearer`.
    pub fn with_client(mut self, client: ClientOptions) -> Self {
        self.client = client;
        self
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

    /// The timeout of each message.
    pub(super) fn timeout(&self) -> Duration {
        request_timeout(&self.client)
    }

    /// Sends the credentials with every message, unless there is a header for them already.
    pub(super) fn add_authorization(&mut self) -> Result<(), Invalid> {
        let authorization = match self.client.credentials() {
            Some(Credentials::Password { user, password }) => {
                format!("Basic {}", STANDARD.encode(format!("{user}:{password}")))
            }
            Some(Credentials::Token(token)) => format!("Bearer {token}"),
            _ => return Ok(()),
        };
        if self.headers.contains_key(AUTHORIZATION) {
            return Err(Invalid::rule(
                "credentials",
                "conflict with the header `authorization`; keep one of them",
            ));
        }
        let rule = |_| Invalid::rule("credentials", "contain a character that HTTP cannot carry");
        let mut value = wire::value("authorization", &authorization).map_err(rule)?;
        value.set_sensitive(true);
        self.headers.insert(AUTHORIZATION, value);
        Ok(())
    }

    pub(super) fn check(&self) -> Result<(), Invalid> {
        let wrong = |field: &'static str, rule: &str| Err(Invalid::rule(field, rule.to_owned()));
        self.client.check()?;
        if self.client.url().is_some() && !self.targets.has_base() {
            return wrong(
                "url",
                "belongs to `HttpOptions::below`; use a client without a URL for whole URLs",
            );
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
            .field("timeout", &self.timeout())
            .field("concurrency", &self.concurrency)
            .field("batch", &self.batch)
            .finish_non_exhaustive()
    }
}
