//! Server address and connection settings.

use crate::{file::contents, timeout::check_timeout};
use postrider_core::Invalid;
use redis::{AsyncConnectionConfig, Client, ConnectionAddr, IntoConnectionInfo, TlsCertificates};
use std::{path::PathBuf, time::Duration};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);

/// Server address and connection settings, before they are checked.
#[derive(Clone)]
pub(super) struct ServerOptions {
    url: String,
    pub(super) response_timeout: Duration,
    pub(super) connect_timeout: Duration,
    pub(super) ca_bundle: Option<PathBuf>,
}

impl ServerOptions {
    pub(super) fn new(url: String) -> Self {
        Self { url, response_timeout: RESPONSE_TIMEOUT, connect_timeout: CONNECT_TIMEOUT, ca_bundle: None }
    }

    /// Checks the settings. `extra` is added to the response timeout, for commands that block at the server.
    pub(super) fn build(&self, extra: Duration) -> Result<Server, Invalid> {
        let unreadable = "is not a Redis URL; write redis://user:password@host:6379/0, or rediss:// for TLS";
        let info = self.url.as_str().into_connection_info().map_err(|_| Invalid::rule("url", unreadable))?;
        let address = match info.addr() {
            ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
                format!("{host}:{port}")
            }
            _ => "a local socket".to_owned(),
        };
        check_timeout("response_timeout", self.response_timeout)?;
        check_timeout("connect_timeout", self.connect_timeout)?;
        let root_cert = self.ca_bundle.as_ref().map(|file| contents("ca_bundle", file));
        let client = match root_cert.transpose()? {
            None => Client::open(info),
            some => Client::build_with_tls(info, TlsCertificates { client_tls: None, root_cert: some }),
        };
        let client = client.map_err(|error| Invalid::rule("url", error.to_string()))?;
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.connect_timeout))
            .set_response_timeout(Some(self.response_timeout.saturating_add(extra)));
        Ok(Server { client, config, address })
    }
}

/// A server, ready to connect to.
pub(super) struct Server {
    pub(super) client: Client,
    pub(super) config: AsyncConnectionConfig,
    /// Host and port, for error messages.
    pub(super) address: String,
}
