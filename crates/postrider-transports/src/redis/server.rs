//! A server, and what a connection to it needs.

use crate::{file::contents, timeout::check_timeout};
use postrider_core::Invalid;
use redis::{AsyncConnectionConfig, Client, ConnectionAddr, IntoConnectionInfo, TlsCertificates};
use std::{path::PathBuf, time::Duration};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// How a server is reached, as it was written down.
#[derive(Clone)]
pub(super) struct ServerOptions {
    url: String,
    pub(super) answer_timeout: Duration,
    pub(super) connect_timeout: Duration,
    pub(super) root_certificates: Option<PathBuf>,
}

impl ServerOptions {
    pub(super) fn new(url: String) -> Self {
        Self {
            url,
            answer_timeout: ANSWER_TIMEOUT,
            connect_timeout: CONNECT_TIMEOUT,
            root_certificates: None,
        }
    }

    /// Checks it all. What is asked may take the server so long to answer, besides what any question may.
    pub(super) fn server(&self, waits: Duration) -> Result<Server, Invalid> {
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
        let root_cert = self.root_certificates.as_ref().map(|file| contents("root_certificates", file));
        let client = match root_cert.transpose()? {
            None => Client::open(info),
            some => Client::build_with_tls(info, TlsCertificates { client_tls: None, root_cert: some }),
        };
        let client = client.map_err(|error| Invalid::rule("url", error.to_string()))?;
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.connect_timeout))
            .set_response_timeout(Some(self.answer_timeout.saturating_add(waits)));
        Ok(Server { client, config, address })
    }
}

/// A server, and how to connect to it.
pub(super) struct Server {
    pub(super) client: Client,
    pub(super) config: AsyncConnectionConfig,
    /// For people.
    pub(super) address: String,
}
