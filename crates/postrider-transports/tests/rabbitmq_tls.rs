//! RabbitMQ over TLS: server certificates and client certificates (mTLS).

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/rabbit.rs"]
mod rabbit;
mod support;

use postrider_core::{Ack, ClientOptions, Invalid, PublishError, Source, SourceError};
use postrider_testkit::{
    Kind,
    broker::RabbitMq,
    shared,
    tls::{CAUSES, Certificates, PlainServer, assert_matrix},
};
use postrider_transports::rabbitmq::{RabbitMqSource, RabbitMqTransport};
use rabbit::Rabbit;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use std::path::PathBuf;
use support::{PATIENCE, client, orders, publish, soon, unused_port};
use tokio::net::TcpStream;

/// A certificate authority, in files.
struct Authority {
    folder: tempfile::TempDir,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let this = Self { folder: tempfile::tempdir().unwrap(), issuer };
        std::fs::write(this.root(), this.issuer.pem()).unwrap();
        this
    }

    fn root(&self) -> PathBuf {
        self.folder.path().join("root.pem")
    }

    /// A certificate for this host name, and its key.
    fn issue(&self, name: &str) -> (PathBuf, PathBuf) {
        let (mut params, key) =
            (CertificateParams::new([name.to_owned()]).unwrap(), KeyPair::generate().unwrap());
        params.distinguished_name.push(DnType::CommonName, name);
        let made = params.signed_by(&key, &self.issuer).unwrap();
        let file = |what: &str| self.folder.path().join(format!("{name}-{what}.pem"));
        std::fs::write(file("certificate"), made.pem()).unwrap();
        std::fs::write(file("key"), key.serialize_pem()).unwrap();
        (file("certificate"), file("key"))
    }
}

/// A broker with a TLS port, with a certificate of this authority, and a queue in it.
struct TlsBroker {
    broker: RabbitMq,
    port: u16,
    queue: String,
}

impl TlsBroker {
    async fn start(authority: &Authority, settings: &[&str]) -> Self {
        let (port, (certificate, key)) = (unused_port(), authority.issue("localhost"));
        let lines = [
            format!("listeners.ssl.1 = 127.0.0.1:{port}"),
            format!("ssl_options.cacertfile = {}", authority.root().display()),
            format!("ssl_options.certfile = {}", certificate.display()),
            format!("ssl_options.keyfile = {}", key.display()),
        ];
        let lines: Vec<_> = lines.iter().map(String::as_str).chain(settings.iter().copied()).collect();
        let broker = RabbitMq::start_with(&lines).await;
        let queue = Rabbit::at(broker.url()).await.queue().await;
        // The broker opens the TLS port after the plain one.
        let open = async {
            while TcpStream::connect(("127.0.0.1", port)).await.is_err() {
                tokio::task::yield_now().await;
            }
        };
        soon(open).await;
        Self { broker, port, queue }
    }

    fn at(&self, host: &str) -> Client {
        Client::to(&format!("amqps://guest:guest@{host}:{}/%2f", self.port), &self.queue)
    }
}

/// A transport and a source with the same options.
#[derive(Debug, Clone)]
struct Client {
    queue: String,
    options: ClientOptions,
}

impl Client {
    fn to(url: &str, queue: &str) -> Self {
        Self { queue: queue.to_owned(), options: client(url, PATIENCE) }
    }

    fn with_ca_bundle(mut self, file: impl Into<PathBuf>) -> Self {
        self.options = self.options.with_ca_bundle(file.into());
        self
    }

    fn with_client_certificate(
        mut self,
        (certificate, key): (impl Into<PathBuf>, impl Into<PathBuf>),
    ) -> Self {
        self.options = self.options.with_client_certificate(certificate.into(), key.into());
        self
    }

    fn transport(&self) -> Result<RabbitMqTransport, Invalid> {
        RabbitMqTransport::new(self.options.clone())
    }

    fn source(&self) -> Result<RabbitMqSource, Invalid> {
        RabbitMqSource::connect(self.options.clone(), &self.queue)
    }

    /// Sends a message and receives it.
    async fn sends_and_receives(self) {
        let sent = orders(1, &self.queue);
        publish(&self.transport().unwrap(), &sent).await.remove(0).unwrap();
        let source = self.source().unwrap();
        let message = soon(source.receive(1)).await.unwrap().remove(0);
        assert_eq!(message.incoming.id, Some(sent[0].id.to_string()));
        soon(source.ack(&[(message.ack_handle, Ack::Ack)])).await.remove(0).unwrap();
        soon(source.close()).await;
    }

    /// The connection errors of transport and source.
    async fn connect_errors(self) -> [String; 2] {
        let transport = self.transport().unwrap();
        let published = publish(&transport, &orders(1, &self.queue)).await.remove(0);
        let Err(PublishError::Unavailable { source: published }) = published else { panic!("{published:?}") };
        let received = soon(self.source().unwrap().receive(1)).await;
        let Err(SourceError::Unavailable { source: received }) = received else { panic!("{received:?}") };
        [published.to_string(), received.to_string()]
    }

    /// The error of the settings, which is the same for transport and source.
    fn setting_error(self) -> String {
        let transport = self.transport().unwrap_err().to_string();
        let shown = format!("{transport} {self:?}");
        assert!(!shown.contains("secret"), "{shown}");
        assert_eq!(transport, self.source().unwrap_err().to_string());
        transport
    }
}

#[tokio::test]
async fn tls_accepts_only_certificates_of_the_ca_bundle() {
    let (ours, theirs) = (Authority::new("ours"), Authority::new("theirs"));
    let server = TlsBroker::start(&ours, &[]).await;
    server.at("localhost").with_ca_bundle(ours.root()).sends_and_receives().await;
    for untrusted in [server.at("localhost").with_ca_bundle(theirs.root()), server.at("localhost")] {
        for error in untrusted.connect_errors().await {
            assert!(error.contains("invalid peer certificate: UnknownIssuer"), "{error}");
        }
    }
    // The certificate is for another host name.
    for error in server.at("127.0.0.1").with_ca_bundle(ours.root()).connect_errors().await {
        assert!(error.contains("certificate not valid for name \"127.0.0.1\""), "{error}");
    }
    // The plain port does not speak TLS.
    let plain = format!("amqps://guest:guest@localhost:{}/%2f", server.broker.port());
    for error in Client::to(&plain, &server.queue).with_ca_bundle(ours.root()).connect_errors().await {
        assert!(error.contains("no connection to RabbitMQ at localhost"), "{error}");
    }
}

#[tokio::test]
async fn client_certificate_is_sent_to_a_broker_that_requires_mtls() {
    let (ours, theirs) = (Authority::new("ours"), Authority::new("theirs"));
    let mtls = ["ssl_options.verify = verify_peer", "ssl_options.fail_if_no_peer_cert = true"];
    let server = TlsBroker::start(&ours, &mtls).await;
    let client = || server.at("localhost").with_ca_bundle(ours.root());
    client().with_client_certificate(ours.issue("relay")).sends_and_receives().await;
    // The broker completes the handshake and then closes the connection. The clients may or may not read the reason.
    for untrusted in [client(), client().with_client_certificate(theirs.issue("relay"))] {
        for error in untrusted.connect_errors().await {
            assert!(error.contains("no connection to RabbitMQ at localhost"), "{error}");
        }
    }
}

#[test]
fn invalid_certificate_settings_are_rejected_with_the_reason() {
    let ours = Authority::new("ours");
    let (certificate, key) = ours.issue("relay");
    let (_, other) = ours.issue("other");
    let wrong = ours.folder.path().join("wrong.pem");
    std::fs::write(&wrong, "-----BEGIN CERTIFICATE-----\nc2VjcmV0\n-----END CERTIFICATE-----\n").unwrap();
    let missing_file = || PathBuf::from("/missing/file.pem");
    let encrypted = || Client::to("amqps://relay:secret@rabbit.example/shop", "orders");
    let plain = || Client::to("amqp://relay:secret@rabbit.example/shop", "orders");

    let no_tls = "url: has no TLS, but certificates are configured; write amqps://";
    assert_eq!(plain().with_ca_bundle(ours.root()).setting_error(), no_tls);
    assert_eq!(plain().with_client_certificate((&certificate, &key)).setting_error(), no_tls);
    let unreadable = "/missing/file.pem cannot be read: No such file or directory (os error 2)";
    assert_eq!(
        encrypted().with_ca_bundle(missing_file()).setting_error(),
        format!("ca_bundle: {unreadable}")
    );
    for missing in [(missing_file(), key.clone()), (certificate.clone(), missing_file())] {
        assert_eq!(
            encrypted().with_client_certificate(missing).setting_error(),
            format!("client_certificate: {unreadable}")
        );
    }
    for (client, text) in [
        (encrypted().with_ca_bundle(&key), "contains no PEM certificate"),
        (encrypted().with_ca_bundle(&wrong), "contains a certificate that cannot be parsed"),
        (encrypted().with_client_certificate((&key, &key)), "contains no PEM certificate"),
        (
            encrypted().with_client_certificate((&certificate, &certificate)),
            "contains no unencrypted PEM key",
        ),
        (encrypted().with_client_certificate((&certificate, &other)), "cannot be used: "),
    ] {
        let error = client.setting_error();
        assert!(error.contains(text), "{error}");
    }
}

#[tokio::test]
async fn rabbitmq_accepts_only_servers_and_certificates_of_its_options() {
    let test = "rabbitmq_accepts_only_servers_and_certificates_of_its_options";
    let Some(certificates) = Certificates::in_own_process(test) else { return };
    let shared = shared::url(Kind::RabbitMq);
    let (user, rest) = shared.trim_start_matches("amqp://").split_once('@').unwrap();
    let (address, vhost) = rest.split_once('/').unwrap_or((rest, "%2f"));
    let server = PlainServer::at(address);
    let url = |port| format!("amqps://{user}@localhost:{port}/{vhost}");
    assert_matrix(&certificates, &server, url, &CAUSES, |client| RabbitMqTransport::new(client).unwrap())
        .await;
}
