//! The options of a client: the address of a server, the certificates that it must show, and how the client authenticates.
//!
//! Every transport, source and store that connects to a server takes the same options, so that one page describes them all. The options
//! are plain data. A certificate file is named here and read where the connection is opened.

use crate::Invalid;
use std::{fmt, path::PathBuf, time::Duration};

/// Longer than a server needs on the same continent, shorter than the patience of a caller.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const LONGEST_TIMEOUT: Duration = Duration::from_secs(24 * 60 * 60);
/// Systems count the idle time before a probe in seconds.
const SHORTEST_KEEPALIVE: Duration = Duration::from_secs(1);

/// Address, trust, credentials and timeouts of a client.
///
/// A URL alone is enough for most servers, and converts: `RabbitMqOptions::new("amqp://localhost")`. `Debug` shows the address without
/// user, password, path and query.
///
/// ```
/// # use postrider_core::client::{ClientOptions, Pem};
/// # use std::time::Duration;
/// let client = ClientOptions::new("amqps://relay:secret@rabbit.example/shop")
///     .with_ca_bundle(Pem::file("/etc/ssl/broker-ca.pem"))
///     .with_client_certificate(Pem::file("/etc/ssl/relay.pem"), Pem::file("/etc/ssl/relay.key"))
///     .with_connect_timeout(Duration::from_secs(3));
/// assert!(!format!("{client:?}").contains("secret"));
/// ```
#[derive(Clone, Default, PartialEq, Eq)]
#[must_use = "options do nothing until a client has them"]
pub struct ClientOptions {
    url: Option<String>,
    trust: Trust,
    client_certificate: Option<ClientCertificate>,
    credentials: Option<Credentials>,
    connect_timeout: Option<Duration>,
    request_timeout: Option<Duration>,
    keepalive: Option<Duration>,
}

/// The certificate authorities (CAs) that a client trusts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Trust {
    /// The system roots: the CAs that the operating system trusts.
    #[default]
    System,
    /// The CAs of this bundle, and none of the system roots.
    Only(Pem),
    /// The system roots and the CAs of this bundle.
    SystemAnd(Pem),
}

/// Certificates or a key in PEM: a file or text.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Pem {
    /// A file. It is read again for new connections, so that a rotated certificate needs no restart.
    File(PathBuf),
    /// The PEM text itself.
    Text(String),
}

/// The certificate by which a client authenticates (mTLS), and its private key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientCertificate {
    /// The certificate, followed by those of intermediate CAs.
    pub certificate: Pem,
    /// The private key, not encrypted.
    pub key: Pem,
}

/// How a client authenticates, apart from its certificate. They take precedence over the user and password of a URL.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Credentials {
    /// User and password.
    Password {
        /// The user.
        user: String,
        /// The password.
        password: String,
    },
    /// A token.
    Token(String),
}

impl ClientOptions {
    /// The server at `url`, with the system roots and default timeouts. Clients without a URL use [`default`](Self::default).
    pub fn new(url: impl Into<String>) -> Self {
        Self { url: Some(url.into()), ..Self::default() }
    }

    /// Another address, with the same certificates, credentials and timeouts.
    pub fn with_url(mut self, url: impl Into<String>) -> Self {
        self.url = Some(url.into());
        self
    }

    /// Trusted CAs. Default: the system roots.
    pub fn with_trust(mut self, trust: Trust) -> Self {
        self.trust = trust;
        self
    }

    /// Trusts only the CAs of this bundle, and none of the system roots.
    pub fn with_ca_bundle(self, bundle: impl Into<Pem>) -> Self {
        self.with_trust(Trust::Only(bundle.into()))
    }

    /// Client certificate (mTLS) and its private key.
    pub fn with_client_certificate(mut self, certificate: impl Into<Pem>, key: impl Into<Pem>) -> Self {
        self.client_certificate =
            Some(ClientCertificate { certificate: certificate.into(), key: key.into() });
        self
    }

    /// Authenticates with user and password, instead of those of the URL.
    pub fn with_password(mut self, user: impl Into<String>, password: impl Into<String>) -> Self {
        self.credentials = Some(Credentials::Password { user: user.into(), password: password.into() });
        self
    }

    /// Authenticates with a token.
    pub fn with_token(mut self, token: impl Into<String>) -> Self {
        self.credentials = Some(Credentials::Token(token.into()));
        self
    }

    /// Connect timeout: name resolution, connection and TLS handshake together. Default: 5 seconds.
    pub fn with_connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = Some(timeout);
        self
    }

    /// Request timeout: how long the client waits for the reply to a request. Without a reply a message may or may not have arrived.
    /// Default: that of the client; brokers and webhooks: 10 seconds.
    pub fn with_request_timeout(mut self, timeout: Duration) -> Self {
        self.request_timeout = Some(timeout);
        self
    }

    /// Keepalive: an idle connection is probed after this time, so that firewalls keep it and a lost one is noticed. Default: that of the
    /// client.
    pub fn with_keepalive(mut self, idle: Duration) -> Self {
        self.keepalive = Some(idle);
        self
    }

    /// The URL. It may hold a password.
    pub fn url(&self) -> Option<&str> {
        self.url.as_deref()
    }

    /// The trusted CAs.
    pub fn trust(&self) -> &Trust {
        &self.trust
    }

    /// The client certificate.
    pub fn client_certificate(&self) -> Option<&ClientCertificate> {
        self.client_certificate.as_ref()
    }

    /// The credentials, unless those of the URL apply.
    pub fn credentials(&self) -> Option<&Credentials> {
        self.credentials.as_ref()
    }

    /// The connect timeout.
    pub fn connect_timeout(&self) -> Duration {
        self.connect_timeout.unwrap_or(CONNECT_TIMEOUT)
    }

    /// The request timeout, unless the default of the client applies.
    pub fn request_timeout(&self) -> Option<Duration> {
        self.request_timeout
    }

    /// The keepalive, unless the default of the client applies.
    pub fn keepalive(&self) -> Option<Duration> {
        self.keepalive
    }

    /// Whether any certificate is set, which makes sense only for an address with TLS.
    pub fn has_certificates(&self) -> bool {
        self.trust != Trust::System || self.client_certificate.is_some()
    }

    /// Checks the timeouts. The client checks its URL, its certificates, and which credentials it supports.
    ///
    /// # Errors
    /// Names the invalid option and the allowed values.
    pub fn check(&self) -> Result<(), Invalid> {
        let timeouts =
            [("connect_timeout", Some(self.connect_timeout())), ("request_timeout", self.request_timeout)];
        for (option, timeout) in timeouts {
            match timeout {
                Some(Duration::ZERO) => {
                    return Err(Invalid::rule(option, "is zero; nothing would ever be accepted"));
                }
                Some(timeout) if timeout > LONGEST_TIMEOUT => {
                    return Err(Invalid::rule(option, "is longer than a day; give less"));
                }
                _ => {}
            }
        }
        match self.keepalive {
            Some(idle) if !(SHORTEST_KEEPALIVE..=LONGEST_TIMEOUT).contains(&idle) => {
                Err(Invalid::rule("keepalive", "must be between a second and a day"))
            }
            _ => Ok(()),
        }
    }
}

impl From<&str> for ClientOptions {
    fn from(url: &str) -> Self {
        Self::new(url)
    }
}

impl From<String> for ClientOptions {
    fn from(url: String) -> Self {
        Self::new(url)
    }
}

impl From<&String> for ClientOptions {
    fn from(url: &String) -> Self {
        Self::new(url)
    }
}

impl Pem {
    /// A PEM file.
    pub fn file(path: impl Into<PathBuf>) -> Self {
        Self::File(path.into())
    }

    /// PEM text.
    pub fn text(pem: impl Into<String>) -> Self {
        Self::Text(pem.into())
    }
}

impl From<PathBuf> for Pem {
    fn from(file: PathBuf) -> Self {
        Self::File(file)
    }
}

impl Trust {
    /// The CA bundle, if there is one.
    pub fn bundle(&self) -> Option<&Pem> {
        match self {
            Self::System => None,
            Self::Only(bundle) | Self::SystemAnd(bundle) => Some(bundle),
        }
    }

    /// Whether the system roots are trusted.
    pub fn includes_system(&self) -> bool {
        !matches!(self, Self::Only(_))
    }
}

/// Names the file, or says that it is text: error messages begin with it.
impl fmt::Display for Pem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => path.display().fmt(f),
            Self::Text(_) => f.write_str("the text"),
        }
    }
}

impl fmt::Debug for Pem {
    /// Omits the text, which may be a private key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => f.debug_tuple("File").field(path).finish(),
            Self::Text(_) => f.write_str("Text(…)"),
        }
    }
}

impl fmt::Debug for Credentials {
    /// Omits everything secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Password { .. } => "Password(…)",
            Self::Token(_) => "Token(…)",
        })
    }
}

impl fmt::Debug for ClientOptions {
    /// Omits the credentials and every part of the URL that may be secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientOptions")
            .field("url", &self.url.as_deref().map(addresses))
            .field("trust", &self.trust)
            .field("client_certificate", &self.client_certificate)
            .field("credentials", &self.credentials)
            .field("connect_timeout", &self.connect_timeout)
            .field("request_timeout", &self.request_timeout)
            .field("keepalive", &self.keepalive)
            .finish()
    }
}

/// The scheme, host and port of each server in a list of URLs. A part that may belong to a password is left out.
fn addresses(urls: &str) -> String {
    let has_several = urls.contains(',');
    let has_user = urls.contains('@');
    let shown = urls.split(',').map(|url| {
        let (scheme, rest) =
            url.trim().split_once("://").map_or(("", url.trim()), |(scheme, rest)| (scheme, rest));
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let host = match authority.rsplit_once('@') {
            Some((_, host)) => host,
            // A password may contain a slash or a comma, and then ends further on.
            None if has_user && (has_several || rest.contains('@')) => "…",
            None => authority,
        };
        match scheme {
            "" => host.to_owned(),
            scheme if scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte)) => {
                format!("{scheme}://{host}")
            }
            _ => "…".to_owned(),
        }
    });
    shown.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "-----BEGIN PRIVATE KEY-----\ns3cret\n-----END PRIVATE KEY-----\n";

    #[test]
    fn debug_shows_no_secret_and_no_user() {
        let urls = [
            ("amqps://relay:s3cret@rabbit.example:5671/shop", "amqps://rabbit.example:5671"),
            ("https://shop.example/hooks/s3cret?key=s3cret#s3cret", "https://shop.example"),
            ("nats://relay:s3cret@a:4222, tls://relay:s3cret@b:4222", "nats://a:4222,tls://b:4222"),
            ("redis://:s3/cret@redis.example", "redis://…"),
            ("https://shop.example/@s3cret", "https://…"),
            ("nats://relay:s3,cret@a:4222", "nats://…,a:4222"),
            ("nats://relay:s3:cret@[::1]:4222", "nats://[::1]:4222"),
            ("s3cret s3cret://host", "…"),
            ("a:9092,b:9092", "a:9092,b:9092"),
        ];
        for (url, shown) in urls {
            let client = ClientOptions::new(url)
                .with_password("relay", "s3cret")
                .with_client_certificate(Pem::text(KEY), Pem::text(KEY));
            let debug = format!("{client:?}");
            assert!(debug.contains(&format!("url: Some({shown:?})")), "{url}: {debug}");
            assert!(!debug.contains("s3") && !debug.contains("relay"), "{url}: {debug}");
        }
        let token = format!("{:?}", ClientOptions::default().with_token("s3cret"));
        assert!(token.contains("credentials: Some(Token(…))"), "{token}");
        let bundle = format!("{:?}", ClientOptions::default().with_ca_bundle(Pem::file("/etc/ca.pem")));
        assert!(bundle.contains("trust: Only(File(\"/etc/ca.pem\"))"), "{bundle}");
    }

    #[test]
    fn url_converts_and_leaves_the_defaults() {
        let url = "amqp://localhost".to_owned();
        let expected = ClientOptions::new("amqp://localhost");
        assert_eq!(ClientOptions::from(&url), expected);
        assert_eq!(ClientOptions::from(url.as_str()), expected);
        assert_eq!(ClientOptions::from(url), expected);
        assert_eq!((expected.trust(), expected.connect_timeout()), (&Trust::System, CONNECT_TIMEOUT));
        assert!(!expected.has_certificates() && expected.check().is_ok());
    }

    #[test]
    fn trust_names_its_bundle_and_whether_system_roots_count() {
        let bundle = Pem::file("ca.pem");
        let both = Trust::SystemAnd(bundle.clone());
        let only = Trust::Only(bundle.clone());
        assert_eq!(
            [Trust::System.bundle(), only.bundle(), both.bundle()],
            [None, Some(&bundle), Some(&bundle)]
        );
        assert_eq!([&Trust::System, &only, &both].map(Trust::includes_system), [true, false, true]);
        assert!(ClientOptions::default().with_trust(both).has_certificates());
        assert!(ClientOptions::default().with_client_certificate(bundle.clone(), bundle).has_certificates());
    }

    #[test]
    fn check_names_the_timeout_that_is_out_of_bounds() {
        let error = |client: ClientOptions| client.check().unwrap_err().to_string();
        let new = || ClientOptions::new("amqp://localhost");
        let (zero, long) = (Duration::ZERO, Duration::MAX);
        let zero_rule = "is zero; nothing would ever be accepted";
        assert_eq!(error(new().with_connect_timeout(zero)), format!("connect_timeout: {zero_rule}"));
        assert_eq!(error(new().with_request_timeout(zero)), format!("request_timeout: {zero_rule}"));
        assert!(error(new().with_connect_timeout(long)).starts_with("connect_timeout: is longer"));
        assert!(error(new().with_request_timeout(long)).starts_with("request_timeout: is longer"));
        for keepalive in [zero, Duration::from_millis(999), long] {
            assert!(error(new().with_keepalive(keepalive)).starts_with("keepalive: must be"));
        }
        new().with_keepalive(Duration::from_secs(1)).check().unwrap();
    }
}
