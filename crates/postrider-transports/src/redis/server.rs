//! The server: its address, its TLS configuration and its timeouts.

use crate::{timeout::request_timeout, tls};
use postrider_core::{ClientOptions, Credentials, Invalid, PublishError};
use postrider_tls::rustls::{ClientConfig, pki_types::ServerName};
use redis::{
    AsyncConnectionConfig, ConnectionAddr, IntoConnectionInfo, RedisConnectionInfo,
    aio::MultiplexedConnection,
    io::tcp::socket2::{SockRef, TcpKeepalive},
};
use std::{error::Error, io, path::PathBuf, sync::Arc, time::Duration};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    task::JoinHandle,
    time::timeout,
};
use tokio_rustls::TlsConnector;

/// A server, ready to connect to.
pub(super) struct Server {
    /// Host and port, for error messages.
    pub(super) address: String,
    endpoint: Endpoint,
    login: RedisConnectionInfo,
    tls: Option<Arc<ClientConfig>>,
    keepalive: Option<TcpKeepalive>,
    connect_timeout: Duration,
    response_timeout: Duration,
}

/// The task that writes commands and reads replies. It ends with the connection, even if replies are missing.
pub(super) struct Driver(JoinHandle<()>);

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

enum Endpoint {
    Tcp(String, u16),
    #[cfg(unix)]
    Unix(PathBuf),
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

impl Server {
    /// Checks the options. `extra` is added to the request timeout, for commands that block at the server.
    pub(super) fn new(client: &ClientOptions, extra: Duration) -> Result<Self, Invalid> {
        client.check()?;
        let unreadable = "is not a Redis URL; write redis://user:password@host:6379/0, or rediss:// for TLS";
        let url = client.url().unwrap_or_default();
        let (has_tls, url) = without_tls(url);
        if has_tls && url.contains('#') {
            return Err(Invalid::rule("url", "has a fragment; remove it: certificates are always verified"));
        }
        let info = url.into_connection_info().map_err(|_| Invalid::rule("url", unreadable))?;
        let endpoint = match info.addr() {
            ConnectionAddr::Tcp(host, port) => Endpoint::Tcp(host.clone(), *port),
            #[cfg(unix)]
            ConnectionAddr::Unix(path) => Endpoint::Unix(path.clone()),
            _ => return Err(Invalid::rule("url", unreadable)),
        };
        let login = info.redis_settings().clone();
        let login = match client.credentials() {
            Some(Credentials::Password { user, password }) => login.set_username(user).set_password(password),
            Some(Credentials::Token(token)) => login.set_password(token),
            _ => login,
        };
        Ok(Self {
            address: match &endpoint {
                Endpoint::Tcp(host, port) => format!("{host}:{port}"),
                #[cfg(unix)]
                Endpoint::Unix(_) => "a local socket".to_owned(),
            },
            endpoint,
            login,
            tls: tls::config(client, has_tls, "rediss")?,
            keepalive: client.keepalive().map(|idle| TcpKeepalive::new().with_time(idle).with_interval(idle)),
            connect_timeout: client.connect_timeout(),
            response_timeout: request_timeout(client).saturating_add(extra),
        })
    }

    /// Bound of one attempt to connect, including a first request.
    pub(super) fn open_timeout(&self) -> Duration {
        self.connect_timeout + self.response_timeout * 2
    }

    /// A new connection, and the task that drives it.
    pub(super) async fn connect(&self) -> Result<(MultiplexedConnection, Driver), PublishError> {
        let failed = |why: String| {
            PublishError::unavailable(format!("no connection to Redis at {}: {why}", self.address))
        };
        let opening = async {
            let stream = self.open_stream().await?;
            let config = AsyncConnectionConfig::new().set_response_timeout(Some(self.response_timeout));
            let (connection, driver) =
                MultiplexedConnection::new_with_config(&self.login, stream, config).await?;
            Ok::<_, Box<dyn Error + Send + Sync>>((connection, Driver(tokio::spawn(driver))))
        };
        match timeout(self.connect_timeout, opening).await {
            Ok(opened) => opened.map_err(|error| failed(tls::describe(&*error))),
            Err(_) => Err(failed(format!("no reply within {:?}", self.connect_timeout))),
        }
    }

    async fn open_stream(&self) -> io::Result<Box<dyn Stream>> {
        let (host, port) = match &self.endpoint {
            Endpoint::Tcp(host, port) => (host, *port),
            #[cfg(unix)]
            Endpoint::Unix(path) => return Ok(Box::new(tokio::net::UnixStream::connect(path).await?)),
        };
        let tcp = TcpStream::connect((host.as_str(), port)).await?;
        tcp.set_nodelay(true)?;
        if let Some(keepalive) = &self.keepalive {
            SockRef::from(&tcp).set_tcp_keepalive(keepalive)?;
        }
        let Some(tls) = &self.tls else { return Ok(Box::new(tcp)) };
        let name = ServerName::try_from(host.clone()).map_err(io::Error::other)?;
        Ok(Box::new(TlsConnector::from(Arc::clone(tls)).connect(name, tcp).await?))
    }
}

/// Whether the URL has TLS, and the URL without it, which is all that the client parses.
fn without_tls(url: &str) -> (bool, String) {
    for (encrypted, plain) in [("rediss://", "redis://"), ("valkeys://", "valkey://")] {
        if let Some(rest) = url.strip_prefix(encrypted) {
            return (true, format!("{plain}{rest}"));
        }
    }
    (false, url.to_owned())
}
