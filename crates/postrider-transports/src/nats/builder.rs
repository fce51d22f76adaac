//! Builder of a NATS transport.

use super::NatsTransport;
use crate::{file::contents, timeout::check_timeout};
use async_nats::{ConnectOptions, ServerAddr};
use percent_encoding::percent_decode_str;
use postrider_core::Invalid;
use std::{fmt, path::PathBuf, time::Duration};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const ACK_TIMEOUT: Duration = Duration::from_secs(10);
const MAX_ACKS_PENDING: usize = 2_000;
/// Commands that the client buffers for its connection. Small, because commands left here by a lost connection may or may not have been
/// sent.
const CLIENT_QUEUE: usize = 64;

/// Builder of a [`NatsTransport`]; [`build`](Self::build) checks the settings.
#[derive(Clone)]
#[must_use = "a builder does nothing until it is built"]
pub struct NatsBuilder {
    pub(super) url: String,
    pub(super) servers: Vec<ServerAddr>,
    pub(super) stream: Option<String>,
    pub(super) max_acks_pending: usize,
    pub(super) ack_timeout: Duration,
    connect_timeout: Duration,
    authentication: Authentication,
    ca_bundle: Option<PathBuf>,
    client_certificate: Option<(PathBuf, PathBuf)>,
}

/// How the client authenticates.
#[derive(Clone)]
enum Authentication {
    /// With the credentials of the URL, if it has any.
    FromUrl,
    Token(String),
    Nkey(String),
    Credentials(String),
}

impl NatsBuilder {
    pub(super) fn new(url: String) -> Self {
        Self {
            url,
            servers: Vec::new(),
            stream: None,
            max_acks_pending: MAX_ACKS_PENDING,
            ack_timeout: ACK_TIMEOUT,
            connect_timeout: CONNECT_TIMEOUT,
            authentication: Authentication::FromUrl,
            ca_bundle: None,
            client_certificate: None,
        }
    }

    /// Expected stream: only its acknowledgements count. The server refuses a message whose subject belongs to another stream, for example
    /// after the subject was moved.
    pub fn with_stream(mut self, stream: impl Into<String>) -> Self {
        self.stream = Some(stream.into());
        self
    }

    /// Authenticates with a token.
    pub fn with_token(mut self, token: impl Into<String>) -> Self {
        self.authentication = Authentication::Token(token.into());
        self
    }

    /// Authenticates with the seed of an nkey.
    pub fn with_nkey(mut self, seed: impl Into<String>) -> Self {
        self.authentication = Authentication::Nkey(seed.into());
        self
    }

    /// Authenticates with the content of a credentials file, which holds a JWT and a seed.
    pub fn with_credentials(mut self, credentials: impl Into<String>) -> Self {
        self.authentication = Authentication::Credentials(credentials.into());
        self
    }

    /// CA bundle (PEM) used instead of the system roots.
    pub fn with_ca_bundle(mut self, file: impl Into<PathBuf>) -> Self {
        self.ca_bundle = Some(file.into());
        self
    }

    /// Client certificate (mutual TLS) and its private key, both PEM files.
    pub fn with_client_certificate(
        mut self,
        certificate: impl Into<PathBuf>,
        key: impl Into<PathBuf>,
    ) -> Self {
        self.client_certificate = Some((certificate.into(), key.into()));
        self
    }

    /// Maximum number of messages in flight, of all calls together. Default: 2,000. Calls beyond that wait.
    pub fn with_max_acks_pending(mut self, acks: usize) -> Self {
        self.max_acks_pending = acks;
        self
    }

    /// Timeout for the acknowledgement of a message. Default: 10 seconds. After it the publish result is unknown: the message may have
    /// arrived. The relay's own timeout applies, too.
    pub fn with_ack_timeout(mut self, timeout: Duration) -> Self {
        self.ack_timeout = timeout;
        self
    }

    /// Timeout for connecting to each server. Default: 5 seconds.
    pub fn with_connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// Checks the settings and creates the transport. It connects with the first message.
    ///
    /// # Errors
    /// Names the first invalid setting and the allowed values. The error never contains the URL, which may hold a password.
    pub fn build(self) -> Result<NatsTransport, Invalid> {
        Ok(NatsTransport::with(self.validate()?))
    }

    /// Checks the settings.
    pub(super) fn validate(mut self) -> Result<Self, Invalid> {
        for url in self.url.split(',') {
            let server: ServerAddr =
                url.trim().parse().map_err(|error| Invalid::rule("url", format!("{error}")))?;
            if !matches!(server.scheme(), "nats" | "tls") || server.host().is_empty() {
                return Err(Invalid::rule(
                    "url",
                    "is not a NATS URL; write nats://host:4222, or tls://host:4222 for TLS",
                ));
            }
            self.servers.push(server);
        }
        if let Some(stream) = &self.stream {
            check_name("stream", stream)?;
        }
        check_timeout("ack_timeout", self.ack_timeout)?;
        check_timeout("connect_timeout", self.connect_timeout)?;
        if !(1..=1_000_000).contains(&self.max_acks_pending) {
            return Err(Invalid::rule("max_acks_pending", "must be between 1 and 1,000,000"));
        }
        if let Authentication::Credentials(credentials) = &self.authentication
            && ConnectOptions::new().credentials(credentials).is_err()
        {
            let rule = "has no JWT or no seed; give the content of a credentials file as `nsc` writes it";
            return Err(Invalid::rule("credentials", rule));
        }
        let certificates = self.client_certificate.iter().flat_map(|(certificate, key)| [certificate, key]);
        for file in certificates {
            contents("client_certificate", file)?;
        }
        if let Some(file) = &self.ca_bundle {
            contents("ca_bundle", file)?;
        }
        self.url = String::new();
        Ok(self)
    }

    /// The client's options for one connection.
    pub(super) fn connect_options(&self) -> std::io::Result<ConnectOptions> {
        // When a connection is lost, the call that notices it returns an error, and the next call connects again. The client would
        // reconnect by itself and send its buffered commands, and it would be unclear which acknowledgements are still to come: it gets
        // one reconnect attempt per server, the lowest possible setting.
        let mut options = ConnectOptions::new()
            .name("postrider")
            .max_reconnects(self.servers.len())
            .ignore_discovered_servers()
            .client_capacity(CLIENT_QUEUE)
            .connection_timeout(self.connect_timeout)
            .request_timeout(Some(self.ack_timeout));
        options = match &self.authentication {
            Authentication::FromUrl => self.with_url_credentials(options),
            Authentication::Token(token) => options.token(token.clone()),
            Authentication::Nkey(seed) => options.nkey(seed.clone()),
            Authentication::Credentials(credentials) => options.credentials(credentials)?,
        };
        if let Some(file) = &self.ca_bundle {
            options = options.add_root_certificates(file.clone());
        }
        if let Some((certificate, key)) = &self.client_certificate {
            options = options.add_client_certificate(certificate.clone(), key.clone());
        }
        Ok(options)
    }

    /// The client reads only the address from a URL.
    fn with_url_credentials(&self, options: ConnectOptions) -> ConnectOptions {
        let text = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
        let credentials =
            self.servers.iter().find_map(|server| Some((server.username()?, server.password())));
        match credentials {
            Some((user, Some(password))) => options.user_and_password(text(user), text(password)),
            Some((token, None)) => options.token(text(token)),
            None => options,
        }
    }

    /// The servers' addresses, for error messages.
    pub(super) fn addresses(&self) -> String {
        let addresses = self.servers.iter().map(|server| format!("{}:{}", server.host(), server.port()));
        addresses.collect::<Vec<_>>().join(", ")
    }
}

/// Checks the name of a stream or of a consumer.
pub(super) fn check_name(kind: &'static str, name: &str) -> Result<(), Invalid> {
    if name.is_empty() || name.contains(|c: char| c.is_whitespace() || ".*>/\\".contains(c)) {
        let rule = format!("{name:?} is not a valid {kind} name: no blanks, '.', '*', '>' or slashes");
        return Err(Invalid::rule(kind, rule));
    }
    Ok(())
}

impl fmt::Debug for NatsBuilder {
    /// Omits the URL and the credentials.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NatsBuilder")
            .field("servers", &self.addresses())
            .field("stream", &self.stream)
            .finish_non_exhaustive()
    }
}
