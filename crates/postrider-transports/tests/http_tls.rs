//! Webhooks over TLS, and the negative control of the TLS matrix.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use postrider_core::ClientOptions;
use postrider_testkit::tls::{CAUSES, Certificates, PlainServer, failures};
use postrider_transports::http::{HttpOptions, HttpTransport};
use rustls::{
    ClientConfig, DigitallySignedStruct, Error, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::ring,
    pki_types::{CertificateDer, ServerName, UnixTime},
};
use std::sync::Arc;
use support::{order, publish};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};
use tokio_rustls::TlsConnector;

/// Responds to every request with 200, and closes the connection.
async fn receiver() -> (PlainServer, JoinSet<()>) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let mut connections = JoinSet::new();
        loop {
            let (mut client, _) = listener.accept().await.unwrap();
            connections.spawn(async move {
                let mut request = [0; 4_096];
                if client.read(&mut request).await.is_ok_and(|read| read > 0) {
                    let response = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
                    client.write_all(response).await.ok();
                }
            });
        }
    });
    (PlainServer::at(address), tasks)
}

fn url(port: u16) -> String {
    format!("https://localhost:{port}")
}

#[tokio::test]
async fn webhooks_accept_only_servers_and_certificates_of_their_options() {
    let test = "webhooks_accept_only_servers_and_certificates_of_their_options";
    let Some(certificates) = Certificates::in_own_process(test) else { return };
    let (server, _serving) = receiver().await;
    let connect = |client: ClientOptions| async {
        let options = HttpOptions::below(client).unwrap().allow_host("localhost");
        let transport = HttpTransport::new(options).unwrap();
        let result = publish(&transport, &[order(1, "orders")]).await.remove(0);
        result.map(|_| ()).map_err(|error| format!("{error:?}"))
    };
    let failures = failures(&certificates, &server, url, &CAUSES, connect).await;
    assert!(failures.is_empty(), "{} cases:\n{}", failures.len(), failures.join("\n"));
}

/// Accepts any certificate.
#[derive(Debug)]
struct Gullible;

impl ServerCertVerifier for Gullible {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        ring::default_provider().signature_verification_algorithms.supported_schemes()
    }
}

/// A client that verifies nothing and shows no certificate fails every case in which the server must be refused, and the one in which
/// the server requires a certificate.
#[tokio::test]
async fn control_client_that_trusts_every_server_fails_the_matrix() {
    let test = "control_client_that_trusts_every_server_fails_the_matrix";
    let Some(certificates) = Certificates::in_own_process(test) else { return };
    let (server, _serving) = receiver().await;
    let connect = |client: ClientOptions| async move {
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Gullible))
            .with_no_client_auth();
        let address = client.url().unwrap().replace("https://", "");
        let tcp = TcpStream::connect(address).await.unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        let error = |error: std::io::Error| error.to_string();
        let mut stream = TlsConnector::from(Arc::new(config)).connect(name, tcp).await.map_err(error)?;
        stream.write_all(b"POST / HTTP/1.1\r\n\r\n").await.map_err(error)?;
        stream.read_u8().await.map(|_| ()).map_err(error)
    };
    let failures = failures(&certificates, &server, url, &CAUSES, connect).await;
    let wrongly_accepted = failures.iter().filter(|failure| failure.ends_with("got Ok(())")).count();
    // For each trust: expired, and another host name. Untrusted: two signers, two signers, one.
    assert_eq!(wrongly_accepted, 3 * 2 + 2 + 2 + 1, "{}", failures.join("\n"));
    let untrusted = failures.iter().filter(|failure| failure.contains("by Stranger")).count();
    assert_eq!(untrusted, 3, "{}", failures.join("\n"));
}
