//! Handshakes between a client of these options and a server, in memory, with every crypto provider that is compiled in.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use postrider_core::{ClientOptions, Pem, Trust};
use postrider_tls::{
    client_config_with, describe,
    rustls::{
        ClientConfig, ClientConnection, Error, RootCertStore, ServerConfig, ServerConnection,
        crypto::CryptoProvider,
        pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
        server::WebPkiClientVerifier,
    },
};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, date_time_ymd};
use std::{path::Path, sync::Arc};

#[cfg(feature = "aws-lc-rs")]
use postrider_tls::rustls::crypto::aws_lc_rs;
#[cfg(feature = "ring")]
use postrider_tls::rustls::crypto::ring;

/// A certificate authority.
struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate and its key, in PEM.
struct Issued {
    certificate: rcgen::Certificate,
    key: KeyPair,
}

impl Authority {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    fn pem(&self) -> Pem {
        Pem::text(self.0.pem())
    }

    fn issue(&self, name: &str) -> Issued {
        self.issue_by(name, |_| ())
    }

    fn issue_by(&self, name: &str, change: impl FnOnce(&mut CertificateParams)) -> Issued {
        let mut params = CertificateParams::new([name.to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        Issued { certificate: params.signed_by(&key, &self.0).unwrap(), key }
    }
}

impl Issued {
    fn on(&self, client: ClientOptions) -> ClientOptions {
        client.with_client_certificate(Pem::text(self.certificate.pem()), Pem::text(self.key.serialize_pem()))
    }

    fn write(&self, folder: &Path) {
        std::fs::write(folder.join("certificate.pem"), self.certificate.pem()).unwrap();
        std::fs::write(folder.join("key.pem"), self.key.serialize_pem()).unwrap();
    }
}

fn providers() -> Vec<Arc<CryptoProvider>> {
    vec![
        #[cfg(feature = "ring")]
        Arc::new(ring::default_provider()),
        #[cfg(feature = "aws-lc-rs")]
        Arc::new(aws_lc_rs::default_provider()),
    ]
}

/// A server with this certificate, which requires client certificates of an authority.
fn server(
    issued: &Issued,
    clients_of: Option<&Authority>,
    provider: &Arc<CryptoProvider>,
) -> Arc<ServerConfig> {
    let builder = ServerConfig::builder_with_provider(Arc::clone(provider));
    let builder = builder.with_safe_default_protocol_versions().unwrap();
    let builder = match clients_of {
        None => builder.with_no_client_auth(),
        Some(authority) => {
            let mut roots = RootCertStore::empty();
            roots.add(authority.0.der().clone()).unwrap();
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider));
            builder.with_client_cert_verifier(verifier.build().unwrap())
        }
    };
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(issued.key.serialize_der()));
    Arc::new(builder.with_single_cert(vec![issued.certificate.der().clone()], key).unwrap())
}

/// Runs the handshake to its end. The client's error, or else the alert that the server sends it.
fn handshake(config: ClientConfig, server: &Arc<ServerConfig>) -> Result<(), Error> {
    let mut client = ClientConnection::new(Arc::new(config), "localhost".try_into().unwrap()).unwrap();
    let mut server = ServerConnection::new(Arc::clone(server)).unwrap();
    let mut bytes = Vec::new();
    for _ in 0..10 {
        bytes.clear();
        while client.wants_write() {
            client.write_tls(&mut bytes).unwrap();
        }
        server.read_tls(&mut &bytes[..]).unwrap();
        // Its error becomes an alert.
        server.process_new_packets().ok();
        bytes.clear();
        while server.wants_write() {
            server.write_tls(&mut bytes).unwrap();
        }
        let mut unread = &bytes[..];
        while !unread.is_empty() {
            client.read_tls(&mut unread).unwrap();
            client.process_new_packets()?;
        }
    }
    assert!(!client.is_handshaking() && !server.is_handshaking());
    Ok(())
}

fn connect(
    client: &ClientOptions,
    server: &Arc<ServerConfig>,
    provider: &Arc<CryptoProvider>,
) -> Result<(), String> {
    let config = client_config_with(client, provider).map_err(|error| error.to_string())?;
    handshake(config, server).map_err(|error| describe(&error).unwrap())
}

#[test]
fn server_needs_a_current_certificate_of_a_trusted_ca_for_its_name() {
    let (ours, theirs) = (Authority::new("ours"), Authority::new("theirs"));
    let expired = ours.issue_by("localhost", |params| {
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(2021, 1, 1);
    });
    let cases = [
        (ours.issue("localhost"), Ok(())),
        (theirs.issue("localhost"), Err("the server's certificate is not signed by a trusted CA: ")),
        (expired, Err("the server's certificate has expired: ")),
        (ours.issue("other.example"), Err("the server's certificate is for another host name: ")),
    ];
    for provider in providers() {
        for trust in [Trust::Only(ours.pem()), Trust::SystemAnd(ours.pem())] {
            let client = ClientOptions::default().with_trust(trust);
            for (issued, expected) in &cases {
                let result = connect(&client, &server(issued, None, &provider), &provider);
                match (&result, expected) {
                    (Ok(()), Ok(())) => {}
                    (Err(error), Err(cause)) if error.starts_with(cause) => {}
                    _ => panic!("{client:?}: expected {expected:?}, got {result:?}"),
                }
            }
        }
    }
}

#[test]
fn client_certificate_is_shown_to_a_server_that_requires_one() {
    let (ours, theirs) = (Authority::new("ours"), Authority::new("theirs"));
    let client = || ClientOptions::default().with_ca_bundle(ours.pem());
    for provider in providers() {
        let server = server(&ours.issue("localhost"), Some(&ours), &provider);
        connect(&ours.issue("relay").on(client()), &server, &provider).unwrap();
        for refused in [client(), theirs.issue("relay").on(client())] {
            let error = connect(&refused, &server, &provider).unwrap_err();
            assert!(
                error.starts_with("the server accepts only client certificates of its own CAs: "),
                "{error}"
            );
        }
    }
}

/// One configuration, as a client with a pool of connections has it.
#[test]
fn rotated_files_count_for_the_next_handshake_and_broken_ones_never() {
    let (old, new) = (Authority::new("old"), Authority::new("new"));
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    let provider = providers().remove(0);
    std::fs::write(file("ca.pem"), old.0.pem()).unwrap();
    old.issue("relay").write(folder.path());
    let client = ClientOptions::default()
        .with_ca_bundle(file("ca.pem"))
        .with_client_certificate(file("certificate.pem"), file("key.pem"));
    let config = client_config_with(&client, &provider).unwrap();
    let [old_server, new_server] =
        [&old, &new].map(|authority| server(&authority.issue("localhost"), Some(authority), &provider));
    handshake(config.clone(), &old_server).unwrap();
    handshake(config.clone(), &new_server).unwrap_err();

    std::fs::write(file("ca.pem"), new.0.pem()).unwrap();
    new.issue("relay").write(folder.path());
    handshake(config.clone(), &new_server).unwrap();
    handshake(config.clone(), &old_server).unwrap_err();

    // A key of another certificate, and a file that is gone.
    std::fs::write(file("key.pem"), old.issue("relay").key.serialize_pem()).unwrap();
    std::fs::write(file("ca.pem"), "-----BEGIN CERTIFICATE-----\n").unwrap();
    handshake(config.clone(), &new_server).unwrap();
    std::fs::remove_file(file("ca.pem")).unwrap();
    handshake(config, &new_server).unwrap();
}

#[test]
fn unusable_certificates_are_errors_of_their_option() {
    let ours = Authority::new("ours");
    let (relay, other) = (ours.issue("relay"), ours.issue("other"));
    let (certificate, key) = (Pem::text(relay.certificate.pem()), Pem::text(relay.key.serialize_pem()));
    let broken = Pem::text("-----BEGIN CERTIFICATE-----\nc2VjcmV0\n-----END CERTIFICATE-----\n");
    let missing = || Pem::file("/missing/file.pem");
    let new = ClientOptions::default;
    let showing = |certificate: Pem, key: Pem| {
        new().with_ca_bundle(ours.pem()).with_client_certificate(certificate, key)
    };
    let unreadable = "/missing/file.pem cannot be read: No such file or directory (os error 2)";
    let provider = providers().remove(0);
    for (client, expected) in [
        (new().with_ca_bundle(missing()), format!("ca_bundle: {unreadable}")),
        (new().with_trust(Trust::SystemAnd(missing())), format!("ca_bundle: {unreadable}")),
        (new().with_ca_bundle(key.clone()), "ca_bundle: the text contains no PEM certificate".to_owned()),
        (
            new().with_ca_bundle(broken),
            "ca_bundle: the text contains a certificate that cannot be parsed".to_owned(),
        ),
        (showing(missing(), key.clone()), format!("client_certificate: {unreadable}")),
        (showing(certificate.clone(), missing()), format!("client_certificate: {unreadable}")),
        (showing(key.clone(), key), "client_certificate: the text contains no PEM certificate".to_owned()),
        (
            showing(certificate.clone(), certificate.clone()),
            "client_certificate: the text contains no unencrypted PEM key".to_owned(),
        ),
        (
            showing(certificate, Pem::text(other.key.serialize_pem())),
            "client_certificate: the text cannot be used: ".to_owned(),
        ),
    ] {
        let error = client_config_with(&client, &provider).unwrap_err().to_string();
        assert!(error.starts_with(&expected), "{client:?}: {error}");
    }
}

/// Clients that do not use rustls get the same certificates as text.
#[test]
fn pem_text_has_the_certificates_of_the_options() {
    let ours = Authority::new("ours");
    let text = postrider_tls::ca_bundle(&Trust::Only(ours.pem())).unwrap();
    assert_eq!(text.lines().collect::<Vec<_>>(), ours.0.pem().lines().collect::<Vec<_>>());
    let both = postrider_tls::ca_bundle(&Trust::SystemAnd(ours.pem())).unwrap();
    let system = postrider_tls::ca_bundle(&Trust::System).unwrap();
    assert_eq!(both, system + &text);
}
