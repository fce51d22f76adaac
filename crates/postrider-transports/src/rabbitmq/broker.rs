//! Broker address and TLS settings.

use crate::file::contents;
use lapin::{
    Connection, ConnectionProperties,
    runtime::default_runtime,
    tcp::{AMQPUriTcpExt, RustlsConnector, RustlsConnectorConfig},
    uri::{AMQPScheme, AMQPUri},
};
use postrider_core::Invalid;
use rustls::{
    RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};
use std::path::{Path, PathBuf};

/// A connection without traffic for about twice this long is considered lost.
const HEARTBEAT_SECONDS: u16 = 10;

/// Broker address and TLS settings, before they are checked.
#[derive(Clone)]
pub(super) struct BrokerOptions {
    url: String,
    pub(super) ca_bundle: Option<PathBuf>,
    pub(super) client_certificate: Option<(PathBuf, PathBuf)>,
}

impl BrokerOptions {
    pub(super) fn new(url: String) -> Self {
        Self { url, ca_bundle: None, client_certificate: None }
    }

    /// Checks the settings. Errors never contain the URL.
    pub(super) fn build(&self) -> Result<Broker, Invalid> {
        // The parser's error may contain the password.
        let mut uri: AMQPUri = self.url.parse().map_err(|_| {
            Invalid::rule(
                "url",
                "is not an AMQP URL; write amqp://user:password@host:port/vhost, or amqps:// for TLS",
            )
        })?;
        uri.query.heartbeat.get_or_insert(HEARTBEAT_SECONDS);
        let has_certificates = self.ca_bundle.is_some() || self.client_certificate.is_some();
        let tls = match uri.scheme {
            AMQPScheme::AMQPS => Some(self.tls()?),
            AMQPScheme::AMQP if has_certificates => {
                let rule = "has no TLS, but certificates are configured; write amqps://";
                return Err(Invalid::rule("url", rule));
            }
            AMQPScheme::AMQP => None,
        };
        Ok(Broker { uri, tls })
    }

    fn tls(&self) -> Result<RustlsConnector, Invalid> {
        let config = match &self.ca_bundle {
            None => RustlsConnectorConfig::new_with_webpki_root_certs(),
            Some(file) => RustlsConnectorConfig::default().with_parsable_certificates(roots(file)?),
        };
        let (setting, connector) = match &self.client_certificate {
            None => ("TLS", config.connector_with_no_client_auth()),
            Some((certificate, key)) => {
                let (chain, key) = (certificates("client_certificate", certificate)?, private_key(key)?);
                ("client_certificate", config.connector_with_single_cert(chain, key))
            }
        };
        connector.map_err(|error| Invalid::rule(setting, format!("cannot be used: {error}")))
    }
}

/// A broker, ready to connect to.
pub(super) struct Broker {
    pub(super) uri: AMQPUri,
    tls: Option<RustlsConnector>,
}

impl Broker {
    pub(super) async fn connect(&self) -> lapin::Result<Connection> {
        let (uri, properties) =
            (self.uri.clone(), ConnectionProperties::default().with_connection_name("postrider".into()));
        let Some(tls) = self.tls.clone() else { return Connection::connect_uri(uri, properties).await };
        // By default the client trusts the given roots in addition to the bundled ones, never instead of them.
        let connect = async move |mut uri: AMQPUri, runtime| {
            uri.scheme = AMQPScheme::AMQP;
            let plain = uri.connect_async(&runtime).await?;
            Ok(plain.into_rustls(&tls, &uri.authority.host).await?)
        };
        Connection::connector(uri, default_runtime()?, connect, properties).await
    }
}

/// The certificates of the CA bundle. The client would skip one that it cannot parse, and reject the broker later.
fn roots(file: &Path) -> Result<Vec<CertificateDer<'static>>, Invalid> {
    let (roots, mut store) = (certificates("ca_bundle", file)?, RootCertStore::empty());
    for root in &roots {
        // The error texts of rustls speak of peers.
        store.add(root.clone()).map_err(|_| {
            let rule = format!("{} contains a certificate that cannot be parsed", file.display());
            Invalid::rule("ca_bundle", rule)
        })?;
    }
    Ok(roots)
}

fn certificates(setting: &'static str, file: &Path) -> Result<Vec<CertificateDer<'static>>, Invalid> {
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&contents(setting, file)?).collect();
    // The parser's error may contain a line of the file, which may be the wrong file and hold a key.
    read.ok()
        .filter(|read| !read.is_empty())
        .ok_or_else(|| Invalid::rule(setting, format!("{} contains no PEM certificate", file.display())))
}

fn private_key(file: &Path) -> Result<PrivateKeyDer<'static>, Invalid> {
    PrivateKeyDer::from_pem_slice(&contents("client_certificate", file)?).map_err(|_| {
        let rule = format!("{} contains no unencrypted PEM key", file.display());
        Invalid::rule("client_certificate", rule)
    })
}
