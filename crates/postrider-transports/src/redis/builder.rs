//! What a connection to Redis needs.

use super::RedisTransport;
use crate::timeout::check_timeout;
use postrider_core::Invalid;
use redis::{AsyncConnectionConfig, Client, ConnectionAddr, IntoConnectionInfo, TlsCertificates};
use std::{fmt, path::PathBuf, time::Duration};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Collects what a transport to Redis needs; [`build`](Self::build) checks it all.
#[derive(Clone)]
#[must_use = "a builder does nothing until it is built"]
pub struct RedisBuilder {
    url: String,
    pub(super) must_exist: bool,
    pub(super) replicas: Option<(u32, Duration)>,
    answer_timeout: Duration,
    connect_timeout: Duration,
    root_certificates: Option<PathBuf>,
}

impl RedisBuilder {
    pub(super) fn new(url: String) -> Self {
        Self {
            url,
            must_exist: false,
            replicas: None,
            answer_timeout: ANSWER_TIMEOUT,
            connect_timeout: CONNECT_TIMEOUT,
            root_certificates: None,
        }
    }

    /// Refuses, for now, what goes to a stream that does not exist, instead of making it. Then a typing error in a name is told and
    /// not filled with messages that nobody reads. Streams are made with their first reader:
    /// `XGROUP CREATE orders billing $ MKSTREAM`.
    pub fn must_exist(mut self) -> Self {
        self.must_exist = true;
        self
    }

    /// A message counts as accepted when so many replicas have it, too, as `WAIT` tells. Where fewer do after `timeout`, nobody knows
    /// what a failover would keep, and it is sent again.
    pub fn with_replicas(mut self, replicas: u32, timeout: Duration) -> Self {
        self.replicas = Some((replicas, timeout));
        self
    }

    /// Trusts the certificates in this file of the format PEM, instead of those of the system.
    pub fn with_root_certificates(mut self, file: impl Into<PathBuf>) -> Self {
        self.root_certificates = Some(file.into());
        self
    }

    /// What is not answered after so long may have arrived, or not; 10 seconds unless said otherwise. Waiting for replicas comes
    /// on top. The relay's own timeout holds besides.
    pub fn with_answer_timeout(mut self, timeout: Duration) -> Self {
        self.answer_timeout = timeout;
        self
    }

    /// Gives the server so long to answer a new connection; 5 seconds unless said otherwise.
    pub fn with_connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// Checks everything and makes the transport. It connects with the first message.
    ///
    /// # Errors
    /// Names the first setting that makes no sense, and says what does. It never shows the URL, which may hold a password.
    pub fn build(self) -> Result<RedisTransport, Invalid> {
        let unreadable = "write redis://user:password@host:6379/0, or rediss:// with TLS";
        let info = self.url.as_str().into_connection_info().map_err(|_| Invalid::rule("url", unreadable))?;
        let address = match info.addr() {
            ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
                format!("{host}:{port}")
            }
            _ => "a socket of this machine".to_owned(),
        };
        check_timeout("answer_timeout", self.answer_timeout)?;
        check_timeout("connect_timeout", self.connect_timeout)?;
        if let Some((count, timeout)) = self.replicas
            && (count == 0 || timeout.as_millis() == 0)
        {
            let rule = "give at least one, and at least a millisecond: to Redis, none means for ever";
            return Err(Invalid::rule("replicas", rule));
        }
        if let Some((_, timeout)) = self.replicas {
            check_timeout("replicas", timeout)?;
        }
        let root_cert = self.root_certificates.as_ref().map(std::fs::read).transpose();
        let root_cert = root_cert
            .map_err(|error| Invalid::rule("root_certificates", format!("cannot be read: {error}")))?;
        let client = match root_cert {
            None => Client::open(info),
            some => Client::build_with_tls(info, TlsCertificates { client_tls: None, root_cert: some }),
        };
        let client = client.map_err(|error| Invalid::rule("url", error.to_string()))?;
        let waits = self.replicas.map(|(_, timeout)| timeout).unwrap_or_default();
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.connect_timeout))
            .set_response_timeout(Some(self.answer_timeout.saturating_add(waits)));
        let server = Server { client, config, address };
        Ok(RedisTransport::with(server, self.must_exist, self.replicas))
    }
}

impl fmt::Debug for RedisBuilder {
    /// Shows no URL: it may hold a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisBuilder")
            .field("must_exist", &self.must_exist)
            .field("replicas", &self.replicas)
            .finish_non_exhaustive()
    }
}

/// A server, and how to connect to it.
pub(super) struct Server {
    pub(super) client: Client,
    pub(super) config: AsyncConnectionConfig,
    /// For people.
    pub(super) address: String,
}
