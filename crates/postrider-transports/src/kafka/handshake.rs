//! Finds out why TLS fails.
//!
//! librdkafka reports only that a certificate could not be verified, not why. A handshake of our own, by the same options, tells.

use super::cluster::ClusterOptions;
use postrider_tls::rustls::pki_types::ServerName;
use std::{io, sync::Arc};
use tokio::{net::TcpStream, time::timeout};
use tokio_rustls::TlsConnector;

/// The cause of a failed handshake and its remedy, of the first server that has one.
pub(super) async fn failure(cluster: &ClusterOptions) -> Option<String> {
    let config = Arc::new(postrider_tls::client_config(&cluster.client).ok()?);
    for server in cluster.servers.split(',') {
        let (host, port) = server.rsplit_once(':')?;
        let (host, port) = (host.trim_matches(['[', ']']), port.parse::<u16>().ok()?);
        let connecting = async {
            let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
            let tcp = TcpStream::connect((host, port)).await?;
            TlsConnector::from(Arc::clone(&config)).connect(name, tcp).await
        };
        if let Ok(Err(error)) = timeout(cluster.connect_timeout, connecting).await
            && let Some(cause) = postrider_tls::describe(&error)
        {
            return Some(format!("no TLS with Kafka at {server}: {cause}"));
        }
    }
    None
}
