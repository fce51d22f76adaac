//! Builder of a NATS transport.

use super::NatsTransport;
use crate::timeout::request_timeout;
use async_nats::{ConnectOptions, ServerAddr};
use percent_encoding::percent_decode_str;
use postrider_core::{ClientOptions, Credentials, Invalid};
use postrider_tls::rustls::ClientConfig;
use std::{fmt, time::Duration};

const MAX_ACKS_PENDING: usize = 2_000;
/// Commands that the client buffers for its connection. Small, because commands left here by a lost connection may or may not have been
/// sent.
const CLIENT_QUEUE: usize = 64;

/// Builder of a [`NatsTransport`]; [`build`](Self::build) checks the settings.
#[derive(Clone)]
#[must_use = "a builder does nothing until it is built"]
pub struct NatsBuilder {
    client: ClientOptions,
    tls: Option<ClientConfig>,
    pub(super) servers: Vec<ServerAddr>,
    pub(super) stream: Option<String>,
    pub(super) max_acks_pending: usize,
    pub(super) request_timeout: Duration,
    nats_login: Option<NatsLogin>,
}

/// The logins that only NATS has.
#[derive(Clone)]
enum NatsLogin {
    Nkey(String),
    Credentials(String),
}

impl NatsBuilder {
    pub(super) fn new(client: ClientOptions) -> Self {
        Self {
            request_timeout: request_timeout(&client),
            client,
            tls: None,
            servers: Vec::new(),
            stream: None,
            max_acks_pending: MAX_ACKS_PENDING,
            nats_login: None,
        }
    }

    /// Expected stream: only its acknowledgements count. The server refuses a message whose subject belongs to another stream, for example
    /// after the subject was moved.
    pub fn with_stream(mut self, stream: impl Into<String>) -> Self {
        self.stream = Some(stream.into());
        self
    }

    /// Authenticates with the seed of an nkey.
    pub fn with_nkey(mut self, seed: impl Into<String>) -> Self {
        self.nats_login = Some(NatsLogin::Nkey(seed.into()));
        self
    }

    /// Authenticates with the content of a credentials file, which holds a JWT and a seed.
    pub fn with_credentials(mut self, credentials: impl Into<String>) -> Self {
        self.nats_login = Some(NatsLogin::Credentials(credentials.into()));
        self
    }

    /// Maximum number of messages in flight, of all calls together. Default: 2,000. Calls beyond that wait.
    pub fn with_max_acks_pending(mut self, acks: usize) -> Self {
        self.max_acks_pending = acks;
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
        self.client.check()?;
        let url = self.client.url().unwrap_or_default();
        for url in url.split(',') {
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
        if !(1..=1_000_000).contains(&self.max_acks_pending) {
            return Err(Invalid::rule("max_acks_pending", "must be between 1 and 1,000,000"));
        }
        if let Some(NatsLogin::Credentials(credentials)) = &self.nats_login
            && ConnectOptions::new().credentials(credentials).is_err()
        {
            let rule = "has no JWT or no seed; give the content of a credentials file as `nsc` writes it";
            return Err(Invalid::rule("credentials", rule));
        }
        self.tls = Some(self.tls_config()?);
        Ok(self)
    }

    /// Bound of one attempt to connect: the connect timeout of each server, whose name may have two addresses.
    pub(super) fn connect_timeout(&self) -> Duration {
        self.client.connect_timeout() * u32::try_from(2 * self.servers.len()).unwrap_or(u32::MAX)
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
            .connection_timeout(self.client.connect_timeout())
            .request_timeout(Some(self.request_timeout));
        if let Some(interval) = self.client.keepalive() {
            options = options.ping_interval(interval);
        }
        // Without it the client would use a crypto provider of the process.
        if let Some(tls) = &self.tls {
            options = options.tls_client_config(tls.clone());
        }
        Ok(match (&self.nats_login, self.client.credentials()) {
            (Some(NatsLogin::Nkey(seed)), _) => options.nkey(seed.clone()),
            (Some(NatsLogin::Credentials(credentials)), _) => options.credentials(credentials)?,
            (None, Some(Credentials::Password { user, password })) => {
                options.user_and_password(user.clone(), password.clone())
            }
            (None, Some(Credentials::Token(token))) => options.token(token.clone()),
            (None, _) => self.with_url_credentials(options),
        })
    }

    /// A server may require TLS whatever the URL says. Without any sign of TLS in the settings, missing system roots are no error.
    fn tls_config(&self) -> Result<ClientConfig, Invalid> {
        let wants_tls = self.servers.iter().any(|server| server.scheme() == "tls");
        match postrider_tls::client_config(&self.client) {
            Err(_) if !wants_tls && !self.client.has_certificates() => postrider_tls::distrusting_config(),
            config => config,
        }
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
    /// Omits the credentials.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NatsBuilder")
            .field("servers", &self.addresses())
            .field("stream", &self.stream)
            .finish_non_exhaustive()
    }
}
