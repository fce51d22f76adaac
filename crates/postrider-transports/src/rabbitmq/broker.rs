//! The broker: its address, its TLS configuration and its timeouts.

use crate::{timeout::request_timeout, tls};
use lapin::{
    Connection, ConnectionProperties,
    runtime::default_runtime,
    tcp::{AMQPUriTcpExt, RustlsConnector},
    uri::{AMQPScheme, AMQPUri},
};
use postrider_core::{ClientOptions, Credentials, Invalid};
use std::time::Duration;

/// A connection without traffic for about twice this long is considered lost.
const HEARTBEAT: Duration = Duration::from_secs(10);

/// A broker, ready to connect to.
pub(super) struct Broker {
    pub(super) uri: AMQPUri,
    tls: Option<RustlsConnector>,
    pub(super) connect_timeout: Duration,
    pub(super) request_timeout: Duration,
}

impl Broker {
    /// Checks the options. Errors never contain the URL.
    pub(super) fn new(client: &ClientOptions) -> Result<Self, Invalid> {
        client.check()?;
        // The parser's error may contain the password.
        let mut uri: AMQPUri = client.url().unwrap_or_default().parse().map_err(|_| {
            Invalid::rule(
                "url",
                "is not an AMQP URL; write amqp://user:password@host:port/vhost, or amqps:// for TLS",
            )
        })?;
        let heartbeat = client.keepalive().unwrap_or(HEARTBEAT).as_secs();
        uri.query.heartbeat.get_or_insert(u16::try_from(heartbeat).unwrap_or(u16::MAX));
        let user = &mut uri.authority.userinfo;
        match client.credentials() {
            Some(Credentials::Password { user: name, password }) => {
                (user.username, user.password) = (name.clone(), password.clone());
            }
            // The broker's OAuth 2 plugin reads the token from the password, and the user from the token.
            Some(Credentials::Token(token)) => {
                (user.username, user.password) = (String::new(), token.clone());
            }
            _ => {}
        }
        let tls = tls::config(client, uri.scheme == AMQPScheme::AMQPS, "amqps")?.map(RustlsConnector::from);
        let (connect_timeout, request_timeout) = (client.connect_timeout(), request_timeout(client));
        Ok(Self { uri, tls, connect_timeout, request_timeout })
    }

    pub(super) async fn connect(&self) -> lapin::Result<Connection> {
        let (uri, properties) =
            (self.uri.clone(), ConnectionProperties::default().with_connection_name("postrider".into()));
        let Some(tls) = self.tls.clone() else { return Connection::connect_uri(uri, properties).await };
        // The client's own TLS settings cannot leave out the system roots, and use a crypto provider of the process.
        let connect = async move |mut uri: AMQPUri, runtime| {
            uri.scheme = AMQPScheme::AMQP;
            let plain = uri.connect_async(&runtime).await?;
            Ok(plain.into_rustls(&tls, &uri.authority.host).await?)
        };
        Connection::connector(uri, default_runtime()?, connect, properties).await
    }
}
