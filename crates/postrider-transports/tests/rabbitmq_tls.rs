//! RabbitMQ over TLS: who is trusted, and who is let in.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/rabbit.rs"]
mod rabbit;
mod support;

use postrider_core::{Answer, PublishError, Source, SourceError};
use postrider_testkit::broker::RabbitMq;
use postrider_transports::rabbitmq::{RabbitMqOptions, RabbitMqSource, RabbitMqSourceBuilder};
use rabbit::Rabbit;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use std::path::PathBuf;
use support::{PATIENCE, orders, publish, soon, unused_port};
use tokio::net::TcpStream;

/// Vouches for others, in files.
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

    /// A certificate for this name, and its key.
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

/// A broker with a port for TLS, for which this authority vouches, and a queue in it.
struct Encrypted {
    broker: RabbitMq,
    port: u16,
    queue: String,
}

impl Encrypted {
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
        // It opens this port after the other one.
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

/// One who publishes, and one who receives, with the same settings.
#[derive(Debug, Clone)]
struct Client {
    queue: String,
    options: RabbitMqOptions,
    builder: RabbitMqSourceBuilder,
}

impl Client {
    fn to(url: &str, queue: &str) -> Self {
        let options = RabbitMqOptions::new(url).with_connect_timeout(PATIENCE);
        let builder = RabbitMqSource::builder(url, queue).with_connect_timeout(PATIENCE);
        Self { queue: queue.to_owned(), options, builder }
    }

    fn trusting(mut self, file: impl Into<PathBuf>) -> Self {
        let file = file.into();
        self.options = self.options.with_root_certificates(&file);
        self.builder = self.builder.with_root_certificates(file);
        self
    }

    fn showing(mut self, (certificate, key): (impl Into<PathBuf>, impl Into<PathBuf>)) -> Self {
        let (certificate, key) = (certificate.into(), key.into());
        self.options = self.options.with_client_certificate(&certificate, &key);
        self.builder = self.builder.with_client_certificate(certificate, key);
        self
    }

    /// Sends a message and receives it.
    async fn gets_through(self) {
        let sent = orders(1, &self.queue);
        publish(&self.options.build().unwrap(), &sent).await.remove(0).unwrap();
        let source = self.builder.build().unwrap();
        let parcel = soon(source.receive(1)).await.unwrap().remove(0);
        assert_eq!(parcel.incoming.id, Some(sent[0].id.to_string()));
        soon(source.answer(&[(parcel.ticket, Answer::Done)])).await.remove(0).unwrap();
        soon(source.close()).await;
    }

    /// Neither gets a connection; what both say of it.
    async fn refusals(self) -> [String; 2] {
        let transport = self.options.build().unwrap();
        let published = publish(&transport, &orders(1, &self.queue)).await.remove(0);
        let Err(PublishError::Down { source: published }) = published else { panic!("{published:?}") };
        let received = soon(self.builder.build().unwrap().receive(1)).await;
        let Err(SourceError::Down { source: received }) = received else { panic!("{received:?}") };
        [published.to_string(), received.to_string()]
    }

    /// What is wrong with the settings, in the words of both.
    fn complaint(self) -> String {
        let transport = self.options.clone().build().unwrap_err().to_string();
        let shown = format!("{transport} {self:?}");
        assert!(!shown.contains("secret"), "{shown}");
        assert_eq!(transport, self.builder.build().unwrap_err().to_string());
        transport
    }
}

#[tokio::test]
async fn tls_is_spoken_with_those_who_are_trusted_only() {
    let (ours, theirs) = (Authority::new("ours"), Authority::new("theirs"));
    let server = Encrypted::start(&ours, &[]).await;
    server.at("localhost").trusting(ours.root()).gets_through().await;
    for refused in [server.at("localhost").trusting(theirs.root()), server.at("localhost")] {
        for said in refused.refusals().await {
            assert!(said.contains("invalid peer certificate: UnknownIssuer"), "{said}");
        }
    }
    // The certificate is for a name.
    for said in server.at("127.0.0.1").trusting(ours.root()).refusals().await {
        assert!(said.contains("certificate not valid for name \"127.0.0.1\""), "{said}");
    }
    // Without TLS, whoever is trusted is not there.
    let plain = format!("amqps://guest:guest@localhost:{}/%2f", server.broker.port());
    for said in Client::to(&plain, &server.queue).trusting(ours.root()).refusals().await {
        assert!(said.contains("no connection to RabbitMQ at localhost"), "{said}");
    }
}

#[tokio::test]
async fn a_broker_that_asks_for_a_certificate_is_shown_one() {
    let (ours, theirs) = (Authority::new("ours"), Authority::new("theirs"));
    let asking = ["ssl_options.verify = verify_peer", "ssl_options.fail_if_no_peer_cert = true"];
    let server = Encrypted::start(&ours, &asking).await;
    let client = || server.at("localhost").trusting(ours.root());
    client().showing(ours.issue("relay")).gets_through().await;
    // It lets them finish their part and then ends the connection. Whether they still read why is a matter of luck.
    for refused in [client(), client().showing(theirs.issue("relay"))] {
        for said in refused.refusals().await {
            assert!(said.contains("no connection to RabbitMQ at localhost"), "{said}");
        }
    }
}

#[test]
fn certificates_that_make_no_sense_are_refused_in_words() {
    let ours = Authority::new("ours");
    let (certificate, key) = ours.issue("relay");
    let (_, other) = ours.issue("other");
    let wrong = ours.folder.path().join("wrong.pem");
    std::fs::write(&wrong, "-----BEGIN CERTIFICATE-----\nc2VjcmV0\n-----END CERTIFICATE-----\n").unwrap();
    let nowhere = || PathBuf::from("/nobody/has/this.pem");
    let encrypted = || Client::to("amqps://relay:secret@rabbit.example/shop", "orders");
    let plain = || Client::to("amqp://relay:secret@rabbit.example/shop", "orders");

    let no_tls = "url: has no TLS and there are certificates: begin it with amqps://";
    assert_eq!(plain().trusting(ours.root()).complaint(), no_tls);
    assert_eq!(plain().showing((&certificate, &key)).complaint(), no_tls);
    let unreadable = "/nobody/has/this.pem cannot be read: No such file or directory (os error 2)";
    assert_eq!(encrypted().trusting(nowhere()).complaint(), format!("root_certificates: {unreadable}"));
    for missing in [(nowhere(), key.clone()), (certificate.clone(), nowhere())] {
        assert_eq!(encrypted().showing(missing).complaint(), format!("client_certificate: {unreadable}"));
    }
    for (refused, words) in [
        (encrypted().trusting(&key), "has no certificate of the format PEM"),
        (encrypted().trusting(&wrong), "has one that is not understood"),
        (encrypted().showing((&key, &key)), "has no certificate of the format PEM"),
        (encrypted().showing((&certificate, &certificate)), "has no key of the format PEM"),
        (encrypted().showing((&certificate, &other)), "cannot be used: "),
    ] {
        let said = refused.complaint();
        assert!(said.contains(words), "{said}");
    }
}
