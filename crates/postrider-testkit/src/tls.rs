//! The TLS matrix: which servers a client accepts by its options. Every client passes the same table.
//!
//! A proxy terminates TLS before the plain server, with a certificate of one of three authorities. One of them is the system's: the test
//! runs in a process of its own, whose system roots it is.

use postrider_core::{ClientOptions, Pem, PublishError, Transport, Trust};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, date_time_ymd};
use rustls::{
    RootCertStore, ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    server::WebPkiClientVerifier,
};
use std::{
    fmt,
    future::Future,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
    time::Duration,
};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};
use tokio_rustls::TlsAcceptor;

/// The folder of the certificates, in the process that runs the matrix.
const FOLDER: &str = "POSTRIDER_TLS_MATRIX";
/// Longer than a connection takes, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// Who has signed a certificate: the authority of the system roots, that of the bundle, or one that nobody trusts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signer {
    /// The authority of the system roots.
    System,
    /// The authority of the bundle.
    Bundle,
    /// An authority that nobody trusts.
    Stranger,
}

/// The certificate of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerCertificate {
    /// Valid for `localhost`.
    Good,
    /// It was valid for `localhost`.
    Expired,
    /// It is valid for another host.
    OtherName,
}

/// What the server does about client certificates, and which one the client has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ClientCertificate {
    /// The server does not ask, and the client has none.
    None,
    /// The server does not ask; the client has one.
    NotAsked,
    /// The server requires one of the bundle's authority. The client has such a one,
    Right,
    /// none,
    Missing,
    /// or one of another authority.
    Wrong,
}

/// The trust of a client, by name: `Trust` with the bundle of the matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trusted {
    System,
    Only,
    Both,
}

/// A row of the matrix.
#[derive(Debug, Clone, Copy)]
struct Case {
    trusted: Trusted,
    signer: Signer,
    server: ServerCertificate,
    client: ClientCertificate,
}

/// The texts by which an error names its cause. One of each suffices.
#[derive(Debug, Clone, Copy)]
pub struct Causes {
    /// The server's certificate is not of a trusted authority.
    pub untrusted: &'static [&'static str],
    /// The server's certificate has expired.
    pub expired: &'static [&'static str],
    /// The server's certificate is for another host.
    pub other_name: &'static [&'static str],
    /// The server refused the client certificate, or missed one.
    pub client_certificate: &'static [&'static str],
}

/// The texts of every client that uses rustls.
pub const CAUSES: Causes = Causes {
    untrusted: &["the server's certificate is not signed by a trusted CA"],
    expired: &["the server's certificate has expired"],
    other_name: &["the server's certificate is for another host name"],
    client_certificate: &["the server accepts only client certificates of its own CAs"],
};

impl Case {
    fn all() -> Vec<Self> {
        use ClientCertificate as Client;
        use ServerCertificate::{Expired, Good, OtherName};
        let mut cases = Vec::new();
        for trusted in [Trusted::System, Trusted::Only, Trusted::Both] {
            let case = |signer, server, client| Self { trusted, signer, server, client };
            for signer in [Signer::System, Signer::Bundle, Signer::Stranger] {
                cases.push(case(signer, Good, Client::None));
            }
            let signer = if trusted == Trusted::System { Signer::System } else { Signer::Bundle };
            cases.push(case(signer, Expired, Client::None));
            cases.push(case(signer, OtherName, Client::None));
            for client in [Client::NotAsked, Client::Right, Client::Missing, Client::Wrong] {
                cases.push(case(signer, Good, client));
            }
        }
        cases
    }

    fn is_trusted(&self) -> bool {
        match self.signer {
            Signer::System => self.trusted != Trusted::Only,
            Signer::Bundle => self.trusted != Trusted::System,
            Signer::Stranger => false,
        }
    }

    /// The texts of the expected error, or none if the client connects.
    fn cause(&self, causes: &Causes) -> Option<&'static [&'static str]> {
        match (self.server, self.client) {
            (ServerCertificate::Expired, _) => Some(causes.expired),
            (ServerCertificate::OtherName, _) => Some(causes.other_name),
            (_, ClientCertificate::Missing | ClientCertificate::Wrong) => Some(causes.client_certificate),
            _ if !self.is_trusted() => Some(causes.untrusted),
            _ => None,
        }
    }

    fn requires_client_certificate(&self) -> bool {
        !matches!(self.client, ClientCertificate::None | ClientCertificate::NotAsked)
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { trusted, signer, server, client } = self;
        write!(f, "trust {trusted:?}, server {server:?} by {signer:?}, client certificate {client:?}")
    }
}

/// The certificates of the matrix, in files.
#[derive(Debug)]
pub struct Certificates {
    folder: PathBuf,
    /// Deletes the folder.
    _created: Option<TempDir>,
}

impl Certificates {
    /// Issues certificates, which are deleted with this value.
    ///
    /// # Panics
    /// When the files cannot be written.
    pub fn issue() -> Self {
        let created = tempfile::tempdir().unwrap();
        let certificates = Self { folder: created.path().to_owned(), _created: Some(created) };
        certificates.write();
        certificates
    }

    /// Runs the test of this name again, in a process whose system roots are the matrix's. In that process, returns the certificates.
    ///
    /// # Panics
    /// When the test fails there.
    pub fn in_own_process(test: &str) -> Option<Self> {
        if let Some(folder) = std::env::var_os(FOLDER) {
            return Some(Self { folder: folder.into(), _created: None });
        }
        let certificates = Self::issue();
        let output = Command::new(std::env::current_exe().unwrap())
            .args([test, "--exact", "--nocapture"])
            .env(FOLDER, &certificates.folder)
            .env("SSL_CERT_FILE", certificates.authority(Signer::System))
            .env_remove("SSL_CERT_DIR")
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && text.contains("1 passed"), "{text}");
        None
    }

    fn write(&self) {
        for signer in [Signer::System, Signer::Bundle, Signer::Stranger] {
            let mut params = CertificateParams::default();
            params.distinguished_name.push(DnType::CommonName, format!("{signer:?}"));
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
            std::fs::write(self.authority(signer), issuer.pem()).unwrap();
            for server in [ServerCertificate::Good, ServerCertificate::Expired, ServerCertificate::OtherName]
            {
                let is_other = server == ServerCertificate::OtherName;
                let names = if is_other { &["other.example"][..] } else { &["localhost", "127.0.0.1"] };
                self.sign(
                    &format!("{server:?}"),
                    signer,
                    &issuer,
                    names,
                    server == ServerCertificate::Expired,
                );
            }
            self.sign("client", signer, &issuer, &["relay"], false);
        }
    }

    fn sign(
        &self,
        what: &str,
        signer: Signer,
        issuer: &CertifiedIssuer<'static, KeyPair>,
        names: &[&str],
        is_expired: bool,
    ) {
        let names: Vec<_> = names.iter().map(ToString::to_string).collect();
        let (mut params, key) = (CertificateParams::new(names).unwrap(), KeyPair::generate().unwrap());
        params.distinguished_name.push(DnType::CommonName, what);
        if is_expired {
            params.not_before = date_time_ymd(2020, 1, 1);
            params.not_after = date_time_ymd(2021, 1, 1);
        }
        let [certificate_file, key_file] = self.files(what, signer);
        std::fs::write(certificate_file, params.signed_by(&key, issuer).unwrap().pem()).unwrap();
        std::fs::write(key_file, key.serialize_pem()).unwrap();
    }

    /// The certificate of an authority.
    pub fn authority(&self, signer: Signer) -> PathBuf {
        self.folder.join(format!("{signer:?}.pem"))
    }

    /// A server's certificate and its key.
    pub fn server(&self, server: ServerCertificate, signer: Signer) -> [PathBuf; 2] {
        self.files(&format!("{server:?}"), signer)
    }

    /// A client's certificate and its key.
    pub fn client(&self, signer: Signer) -> [PathBuf; 2] {
        self.files("client", signer)
    }

    fn files(&self, what: &str, signer: Signer) -> [PathBuf; 2] {
        ["pem", "key"].map(|ending| self.folder.join(format!("{what}-{signer:?}.{ending}")))
    }

    /// The options of the client in a case.
    fn options(&self, case: &Case, url: String, timeout: Duration) -> ClientOptions {
        let bundle = || Pem::File(self.authority(Signer::Bundle));
        let trust = match case.trusted {
            Trusted::System => Trust::System,
            Trusted::Only => Trust::Only(bundle()),
            Trusted::Both => Trust::SystemAnd(bundle()),
        };
        let client = ClientOptions::new(url).with_trust(trust);
        let client = client.with_connect_timeout(timeout).with_request_timeout(timeout);
        let signer = match case.client {
            ClientCertificate::None | ClientCertificate::Missing => return client,
            ClientCertificate::NotAsked | ClientCertificate::Right => Signer::Bundle,
            ClientCertificate::Wrong => Signer::Stranger,
        };
        let [certificate, key] = self.client(signer);
        client.with_client_certificate(certificate, key)
    }

    fn acceptor(&self, case: &Case) -> TlsAcceptor {
        let provider = Arc::new(ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider));
        let builder = builder.with_safe_default_protocol_versions().unwrap();
        let builder = if case.requires_client_certificate() {
            let mut roots = RootCertStore::empty();
            roots.add(read(&self.authority(Signer::Bundle))).unwrap();
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            builder.with_client_cert_verifier(verifier.build().unwrap())
        } else {
            builder.with_no_client_auth()
        };
        let [certificate, key] = self.server(case.server, case.signer);
        let key = PrivateKeyDer::from_pem_file(key).unwrap();
        TlsAcceptor::from(Arc::new(builder.with_single_cert(vec![read(&certificate)], key).unwrap()))
    }
}

fn read(file: &Path) -> CertificateDer<'static> {
    CertificateDer::from_pem_file(file).unwrap()
}

/// What a client and a server send before TLS begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Preamble {
    /// Nothing.
    None,
    /// A line of the server, as NATS.
    Greeting,
    /// The client's request for TLS, and the server's consent, as PostgreSQL.
    SslRequest,
}

/// A plain server, and how the proxy before it speaks.
#[derive(Debug, Clone)]
pub struct PlainServer {
    /// Host and port.
    pub address: String,
    /// The port of the proxy; 0 is any.
    pub proxy_port: u16,
    /// What is sent before TLS begins.
    pub preamble: Preamble,
    /// How long a client tries. Kafka's tries that long before it reports a refused certificate.
    pub timeout: Duration,
}

impl PlainServer {
    /// The server at this host and port, without a preamble.
    pub fn at(address: impl Into<String>) -> Self {
        Self { address: address.into(), proxy_port: 0, preamble: Preamble::None, timeout: PATIENCE }
    }
}

/// Terminates TLS until it is stopped.
struct TlsProxy {
    port: u16,
    tasks: JoinSet<()>,
}

impl TlsProxy {
    async fn start(server: &PlainServer, acceptor: TlsAcceptor) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", server.proxy_port)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (server, mut tasks) = (server.clone(), JoinSet::new());
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (client, _) = listener.accept().await.unwrap();
                let (server, acceptor) = (server.clone(), acceptor.clone());
                connections.spawn(async move {
                    forward(client, &server, &acceptor).await.ok();
                });
            }
        });
        Self { port, tasks }
    }

    /// Frees the port.
    async fn stop(mut self) {
        self.tasks.shutdown().await;
    }
}

async fn forward(mut client: TcpStream, server: &PlainServer, acceptor: &TlsAcceptor) -> std::io::Result<()> {
    let mut plain = TcpStream::connect(&server.address).await?;
    match server.preamble {
        Preamble::None => {}
        Preamble::Greeting => {
            let mut byte = 0;
            while byte != b'\n' {
                byte = plain.read_u8().await?;
                client.write_u8(byte).await?;
            }
        }
        Preamble::SslRequest => {
            client.read_exact(&mut [0; 8]).await?;
            client.write_all(b"S").await?;
        }
    }
    let mut encrypted = acceptor.accept(client).await?;
    copy_bidirectional(&mut encrypted, &mut plain).await?;
    Ok(())
}

/// Connects with the options of each case, and returns the cases that end differently than they should. The URL has the port of the proxy.
pub async fn failures<F: Future<Output = Result<(), String>>>(
    certificates: &Certificates,
    server: &PlainServer,
    url: impl Fn(u16) -> String,
    causes: &Causes,
    connect: impl Fn(ClientOptions) -> F,
) -> Vec<String> {
    let mut failures = Vec::new();
    for case in Case::all() {
        let proxy = TlsProxy::start(server, certificates.acceptor(&case)).await;
        let connecting = connect(certificates.options(&case, url(proxy.port), server.timeout));
        let result = tokio::time::timeout(PATIENCE * 2, connecting).await;
        proxy.stop().await;
        let result = result.unwrap_or_else(|_| Err("no end within the timeout".to_owned()));
        let is_expected = match (&result, case.cause(causes)) {
            (Ok(()), None) => true,
            (Err(error), Some(texts)) => texts.iter().any(|text| error.contains(text)),
            _ => false,
        };
        if !is_expected {
            failures.push(format!("{case}: expected {:?}, got {result:?}", case.cause(causes)));
        }
    }
    failures
}

/// Runs the matrix on a transport: it connects by checking a destination.
///
/// # Panics
/// When a case ends differently than it should.
pub async fn assert_matrix<T: Transport>(
    certificates: &Certificates,
    server: &PlainServer,
    url: impl Fn(u16) -> String,
    causes: &Causes,
    transport: impl Fn(ClientOptions) -> T,
) {
    let connect = |client| {
        let transport = transport(client);
        async move {
            let checked = transport.check(&["orders"]).await;
            transport.close().await;
            match checked {
                Ok(_) => Ok(()),
                Err(PublishError::Unavailable { source }) => Err(source.to_string()),
                Err(other) => Err(format!("not unavailable: {other:?}")),
            }
        }
    };
    let failures = failures(certificates, server, url, causes, connect).await;
    assert!(failures.is_empty(), "{} cases:\n{}", failures.len(), failures.join("\n"));
}
