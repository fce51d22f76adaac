//! What a connection to NATS needs.

use super::NatsTransport;
use crate::{file::contents, timeout::check_timeout};
use async_nats::{ConnectOptions, ServerAddr};
use percent_encoding::percent_decode_str;
use postrider_core::Invalid;
use std::{fmt, path::PathBuf, time::Duration};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const ACK_TIMEOUT: Duration = Duration::from_secs(10);
const ACKS_PENDING: usize = 2_000;
/// Commands that the client holds for its connection. Small: what a lost connection leaves here is not known to be unsent.
const COMMANDS: usize = 64;

/// Collects what a transport to NATS needs; [`build`](Self::build) checks it all.
#[derive(Clone)]
#[must_use = "a builder does nothing until it is built"]
pub struct NatsBuilder {
    pub(super) url: String,
    pub(super) servers: Vec<ServerAddr>,
    pub(super) stream: Option<String>,
    pub(super) acks_pending: usize,
    pub(super) ack_timeout: Duration,
    connect_timeout: Duration,
    login: Login,
    root_certificates: Option<PathBuf>,
    client_certificate: Option<(PathBuf, PathBuf)>,
}

/// How it says who it is.
#[derive(Clone)]
enum Login {
    /// As the URL says, if it does.
    Url,
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
            acks_pending: ACKS_PENDING,
            ack_timeout: ACK_TIMEOUT,
            connect_timeout: CONNECT_TIMEOUT,
            login: Login::Url,
            root_certificates: None,
            client_certificate: None,
        }
    }

    /// Accepts an acknowledgement of this stream only. The server refuses what another stream would take, as happens where somebody
    /// moved a subject.
    pub fn with_stream(mut self, stream: impl Into<String>) -> Self {
        self.stream = Some(stream.into());
        self
    }

    /// Says who it is with a token.
    pub fn with_token(mut self, token: impl Into<String>) -> Self {
        self.login = Login::Token(token.into());
        self
    }

    /// Says who it is with the seed of an nkey.
    pub fn with_nkey(mut self, seed: impl Into<String>) -> Self {
        self.login = Login::Nkey(seed.into());
        self
    }

    /// Says who it is with the text of a credentials file, which holds a JWT and a seed.
    pub fn with_credentials(mut self, credentials: impl Into<String>) -> Self {
        self.login = Login::Credentials(credentials.into());
        self
    }

    /// Trusts the certificates in this file of the format PEM, instead of those of the system.
    pub fn with_root_certificates(mut self, file: impl Into<PathBuf>) -> Self {
        self.root_certificates = Some(file.into());
        self
    }

    /// Shows this certificate; both files have the format PEM.
    pub fn with_client_certificate(
        mut self,
        certificate: impl Into<PathBuf>,
        key: impl Into<PathBuf>,
    ) -> Self {
        self.client_certificate = Some((certificate.into(), key.into()));
        self
    }

    /// Waits for at most so many acknowledgements at once, of all calls together; 2,000 unless said otherwise. Calls beyond that wait
    /// for their turn.
    pub fn with_acks_pending(mut self, acks: usize) -> Self {
        self.acks_pending = acks;
        self
    }

    /// What is not acknowledged after so long may have arrived, or not; 10 seconds unless said otherwise. The relay's own timeout
    /// holds besides.
    pub fn with_ack_timeout(mut self, timeout: Duration) -> Self {
        self.ack_timeout = timeout;
        self
    }

    /// Gives each server so long to answer a new connection; 5 seconds unless said otherwise.
    pub fn with_connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// Checks everything and makes the transport. It connects with the first message.
    ///
    /// # Errors
    /// Names the first setting that makes no sense, and says what does. It never shows the URL, which may hold a password.
    pub fn build(self) -> Result<NatsTransport, Invalid> {
        Ok(NatsTransport::with(self.checked()?))
    }

    /// The settings, once they make sense.
    pub(super) fn checked(mut self) -> Result<Self, Invalid> {
        for url in self.url.split(',') {
            let server: ServerAddr =
                url.trim().parse().map_err(|error| Invalid::rule("url", format!("{error}")))?;
            if !matches!(server.scheme(), "nats" | "tls") || server.host().is_empty() {
                return Err(Invalid::rule("url", "write nats://host:4222, or tls://host:4222 with TLS"));
            }
            self.servers.push(server);
        }
        if let Some(stream) = &self.stream {
            check_name("stream", stream)?;
        }
        check_timeout("ack_timeout", self.ack_timeout)?;
        check_timeout("connect_timeout", self.connect_timeout)?;
        if !(1..=1_000_000).contains(&self.acks_pending) {
            return Err(Invalid::rule("acks_pending", "give at least 1, and at most 1,000,000"));
        }
        if let Login::Credentials(credentials) = &self.login
            && ConnectOptions::new().credentials(credentials).is_err()
        {
            let rule = "has no JWT or no seed; give the text of a file as `nsc` writes it";
            return Err(Invalid::rule("credentials", rule));
        }
        let certificates = self.client_certificate.iter().flat_map(|(certificate, key)| [certificate, key]);
        for file in certificates.chain(&self.root_certificates) {
            contents("certificate", file)?;
        }
        self.url = String::new();
        Ok(self)
    }

    /// What the client is told for one connection.
    pub(super) fn for_client(&self) -> std::io::Result<ConnectOptions> {
        // When a connection is lost, the call that notices it answers, and the next one connects anew. The client would do so
        // by itself, send what it held back, and leave us to guess whose answers are still to come: it gets one attempt for each
        // server, which is the least that can be set.
        let mut options = ConnectOptions::new()
            .name("postrider")
            .max_reconnects(self.servers.len())
            .ignore_discovered_servers()
            .client_capacity(COMMANDS)
            .connection_timeout(self.connect_timeout)
            .request_timeout(Some(self.ack_timeout));
        options = match &self.login {
            Login::Url => self.as_url_says(options),
            Login::Token(token) => options.token(token.clone()),
            Login::Nkey(seed) => options.nkey(seed.clone()),
            Login::Credentials(credentials) => options.credentials(credentials)?,
        };
        if let Some(file) = &self.root_certificates {
            options = options.add_root_certificates(file.clone());
        }
        if let Some((certificate, key)) = &self.client_certificate {
            options = options.add_client_certificate(certificate.clone(), key.clone());
        }
        Ok(options)
    }

    /// The client reads the address from a URL, and nothing else.
    fn as_url_says(&self, options: ConnectOptions) -> ConnectOptions {
        let text = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
        let named = self.servers.iter().find_map(|server| Some((server.username()?, server.password())));
        match named {
            Some((user, Some(password))) => options.user_and_password(text(user), text(password)),
            Some((token, None)) => options.token(text(token)),
            None => options,
        }
    }

    /// Where it connects, for people.
    pub(super) fn addresses(&self) -> String {
        let addresses = self.servers.iter().map(|server| format!("{}:{}", server.host(), server.port()));
        addresses.collect::<Vec<_>>().join(", ")
    }
}

/// The name of a stream, or of a consumer.
pub(super) fn check_name(what: &'static str, name: &str) -> Result<(), Invalid> {
    if name.is_empty() || name.contains(|c: char| c.is_whitespace() || ".*>/\\".contains(c)) {
        let rule = format!("{name:?} is not the name of a {what}: no blanks, '.', '*', '>' or slashes");
        return Err(Invalid::rule(what, rule));
    }
    Ok(())
}

impl fmt::Debug for NatsBuilder {
    /// Shows no URL and no login: they may hold a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NatsBuilder")
            .field("servers", &self.addresses())
            .field("stream", &self.stream)
            .finish_non_exhaustive()
    }
}
