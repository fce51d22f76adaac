//! A broker, and what a connection to it needs.

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

/// A broker that says nothing for about twice as long is taken for gone.
const HEARTBEAT_SECONDS: u16 = 10;

/// How a broker is reached, as it was written down.
#[derive(Clone)]
pub(super) struct BrokerOptions {
    url: String,
    pub(super) root_certificates: Option<PathBuf>,
    pub(super) client_certificate: Option<(PathBuf, PathBuf)>,
}

impl BrokerOptions {
    pub(super) fn new(url: String) -> Self {
        Self { url, root_certificates: None, client_certificate: None }
    }

    /// Checks it all, and shows nothing of the URL.
    pub(super) fn broker(&self) -> Result<Broker, Invalid> {
        // The parser's own words may hold the password.
        let mut uri: AMQPUri = self.url.parse().map_err(|_| {
            Invalid::rule(
                "url",
                "is not one of RabbitMQ: write amqp://user:password@host:port/vhost, or amqps:// for TLS",
            )
        })?;
        uri.query.heartbeat.get_or_insert(HEARTBEAT_SECONDS);
        let has_certificates = self.root_certificates.is_some() || self.client_certificate.is_some();
        let tls = match uri.scheme {
            AMQPScheme::AMQPS => Some(self.tls()?),
            AMQPScheme::AMQP if has_certificates => {
                let rule = "has no TLS and there are certificates: begin it with amqps://";
                return Err(Invalid::rule("url", rule));
            }
            AMQPScheme::AMQP => None,
        };
        Ok(Broker { uri, tls })
    }

    fn tls(&self) -> Result<RustlsConnector, Invalid> {
        let config = match &self.root_certificates {
            None => RustlsConnectorConfig::new_with_webpki_root_certs(),
            Some(file) => RustlsConnectorConfig::default().with_parsable_certificates(roots(file)?),
        };
        let (setting, connector) = match &self.client_certificate {
            None => ("TLS", config.connector_with_no_client_auth()),
            Some((certificate, key)) => {
                let (shown, key) = (certificates("client_certificate", certificate)?, private_key(key)?);
                ("client_certificate", config.connector_with_single_cert(shown, key))
            }
        };
        connector.map_err(|error| Invalid::rule(setting, format!("cannot be used: {error}")))
    }
}

/// A broker, and how to connect to it.
pub(super) struct Broker {
    pub(super) uri: AMQPUri,
    tls: Option<RustlsConnector>,
}

impl Broker {
    pub(super) async fn connect(&self) -> lapin::Result<Connection> {
        let (uri, properties) =
            (self.uri.clone(), ConnectionProperties::default().with_connection_name("postrider".into()));
        let Some(tls) = self.tls.clone() else { return Connection::connect_uri(uri, properties).await };
        // Left to itself, the client trusts what it is given besides what it knows, and never instead of it.
        let connect = async move |mut uri: AMQPUri, runtime| {
            uri.scheme = AMQPScheme::AMQP;
            let plain = uri.connect_async(&runtime).await?;
            Ok(plain.into_rustls(&tls, &uri.authority.host).await?)
        };
        Connection::connector(uri, default_runtime()?, connect, properties).await
    }
}

/// The certificates that are trusted. The client would pass over one that it does not understand, and refuse its broker later.
fn roots(file: &Path) -> Result<Vec<CertificateDer<'static>>, Invalid> {
    let (roots, mut store) = (certificates("root_certificates", file)?, RootCertStore::empty());
    for root in &roots {
        // The words for what is wrong with one are about peers.
        store.add(root.clone()).map_err(|_| {
            let rule = format!("{} has one that is not understood", file.display());
            Invalid::rule("root_certificates", rule)
        })?;
    }
    Ok(roots)
}

fn certificates(setting: &'static str, file: &Path) -> Result<Vec<CertificateDer<'static>>, Invalid> {
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&contents(setting, file)?).collect();
    // The reader's own words may hold a line of the file, which may be the wrong one and have a key.
    read.ok().filter(|read| !read.is_empty()).ok_or_else(|| {
        Invalid::rule(setting, format!("{} has no certificate of the format PEM", file.display()))
    })
}

fn private_key(file: &Path) -> Result<PrivateKeyDer<'static>, Invalid> {
    PrivateKeyDer::from_pem_slice(&contents("client_certificate", file)?).map_err(|_| {
        let rule = format!("{} has no key of the format PEM without a password", file.display());
        Invalid::rule("client_certificate", rule)
    })
}
