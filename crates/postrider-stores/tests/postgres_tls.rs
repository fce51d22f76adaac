//! PostgreSQL over TLS.

#![cfg(feature = "postgres")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use postrider_core::{
    CheckupRequest, ClientOptions, Error, Pem, Store, Trust, notifier::Notifier, schema::Schema,
};
use postrider_stores::postgres::PostgresStore;
use postrider_testkit::{
    postgres::server_url,
    server::PrivatePostgres,
    tls::{CAUSES, Certificates, PlainServer, Preamble, ServerCertificate, Signer, failures},
};
use sqlx::{Connection, PgConnection, postgres::PgConnectOptions};
use std::collections::BTreeMap;

/// The error of a connection, or nothing if it works.
async fn connect(client: ClientOptions) -> Result<(), String> {
    let described = |error: Error| match error {
        Error::Unavailable(source) => source.to_string(),
        other => format!("not unavailable: {other:?}"),
    };
    let store = PostgresStore::connect(client).await.map_err(described)?;
    let pinged = store.ping().await.map_err(described);
    store.close().await;
    pinged
}

#[tokio::test]
async fn postgres_accepts_only_servers_and_certificates_of_its_options() {
    let test = "postgres_accepts_only_servers_and_certificates_of_its_options";
    let Some(certificates) = Certificates::in_own_process(test) else { return };
    let plain: PgConnectOptions = server_url().parse().unwrap();
    let address = format!("{}:{}", plain.get_host(), plain.get_port());
    let server = PlainServer { preamble: Preamble::SslRequest, ..PlainServer::at(address) };
    // Without certificates, only the URL asks for verification.
    let url = |port| format!("postgres://postgres@localhost:{port}/postgres?sslmode=verify-full");
    let failures = failures(&certificates, &server, url, &CAUSES, connect).await;
    assert!(failures.is_empty(), "{} cases:\n{}", failures.len(), failures.join("\n"));
}

/// The connections of the store and their encryption, as the server sees them.
async fn connections(url: &str) -> BTreeMap<String, bool> {
    let sql = "select a.application_name, bool_and(s.ssl) from pg_stat_ssl s join pg_stat_activity a using (pid) \
        where a.application_name like 'postrider%' group by 1";
    let mut admin = PgConnection::connect(url).await.unwrap();
    sqlx::query_as::<_, (String, bool)>(sql).fetch_all(&mut admin).await.unwrap().into_iter().collect()
}

#[tokio::test]
async fn store_and_listener_connect_with_tls_and_follow_the_bundle_file() {
    let certificates = Certificates::issue();
    let server =
        PrivatePostgres::start_with_tls(certificates.server(ServerCertificate::Good, Signer::Bundle)).await;
    let url = server.url().replace("127.0.0.1", "localhost");
    let bundle = certificates.authority(Signer::Bundle);
    let store =
        PostgresStore::connect(ClientOptions::new(&url).with_ca_bundle(bundle.clone())).await.unwrap();
    store.migrate().await.unwrap();
    let queues = ["orders".parse().unwrap()];
    let listener = store.listen(&queues).await.unwrap();
    let encrypted = BTreeMap::from([("postrider".to_owned(), true), ("postrider listener".to_owned(), true)]);
    assert_eq!(connections(&url).await, encrypted);
    drop(listener);

    // The file is read for each connection.
    let good = std::fs::read(&bundle).unwrap();
    std::fs::copy(certificates.authority(Signer::Stranger), &bundle).unwrap();
    let error = store.listen(&queues).await.err().unwrap().to_string();
    assert!(error.contains("the server's certificate is not signed by a trusted CA"), "{error}");
    std::fs::write(&bundle, good).unwrap();
    store.listen(&queues).await.unwrap();
    store.close().await;
}

/// What the URL says counts as in libpq.
#[tokio::test]
async fn sslmode_of_the_url_decides_without_certificates() {
    // As an application: sqlx needs it for `verify-ca`.
    (*postrider_tls::provider().unwrap()).clone().install_default().unwrap();
    let certificates = Certificates::issue();
    let start =
        |certificate| PrivatePostgres::start_with_tls(certificates.server(certificate, Signer::Bundle));
    let (server, other) = (start(ServerCertificate::Good).await, start(ServerCertificate::OtherName).await);
    let root = format!("sslrootcert={}", certificates.authority(Signer::Bundle).display());
    for (server, query, expected) in [
        (&server, "sslmode=disable".to_owned(), Ok(false)),
        (&server, "sslmode=prefer".to_owned(), Ok(true)),
        (&server, "sslmode=require".to_owned(), Ok(true)),
        (&server, "sslmode=verify-full".to_owned(), Err(CAUSES.untrusted[0])),
        (&server, format!("sslmode=verify-full&{root}"), Ok(true)),
        (&other, format!("sslmode=verify-full&{root}"), Err(CAUSES.other_name[0])),
        (&other, format!("sslmode=verify-ca&{root}"), Ok(true)),
        (&other, format!("sslmode=require&{root}"), Ok(true)),
    ] {
        let opened = PostgresStore::connect(format!("{}?{query}", server.url())).await;
        match (opened, expected) {
            (Ok(store), Ok(is_encrypted)) => {
                let seen = connections(&server.url()).await;
                assert_eq!(seen.get("postrider"), Some(&is_encrypted), "{query}");
                store.close().await;
            }
            (Err(error), Err(cause)) => assert!(error.to_string().contains(cause), "{query}: {error}"),
            (opened, expected) => panic!("{query}: expected {expected:?}, got {opened:?}"),
        }
    }
    // A CA bundle makes `require` verify: sqlx alone would ignore it.
    let stranger = Trust::Only(Pem::File(certificates.authority(Signer::Stranger)));
    let url = format!("{}?sslmode=require", server.url());
    let error = connect(ClientOptions::new(url).with_trust(stranger)).await.unwrap_err();
    assert!(error.contains(CAUSES.untrusted[0]), "{error}");
}

#[tokio::test]
async fn server_without_tls_is_refused_when_the_options_ask_for_tls() {
    let certificates = Certificates::issue();
    let client = ClientOptions::new(server_url()).with_ca_bundle(certificates.authority(Signer::Bundle));
    let error = connect(client).await.unwrap_err();
    assert!(error.starts_with("the server does not offer TLS"), "{error}");
}

#[tokio::test]
async fn checkup_reports_a_connection_that_is_not_encrypted_or_not_verified() {
    let certificates = Certificates::issue();
    let server =
        PrivatePostgres::start_with_tls(certificates.server(ServerCertificate::Good, Signer::Bundle)).await;
    let findings = async |url: String| {
        let store = PostgresStore::connect(url).await.unwrap();
        let findings = store.checkup(&CheckupRequest::default()).await.unwrap();
        store.close().await;
        let of_connection = findings.into_iter().filter(|finding| finding.subject == "connection");
        of_connection.map(|finding| finding.code).collect::<Vec<_>>()
    };
    // Addresses of this machine in other notations, which stand for another machine.
    let remote = |host| server.url().replace("127.0.0.1", host);
    assert_eq!(findings(format!("{}?sslmode=disable", remote("127.1"))).await, ["unencrypted"]);
    assert_eq!(findings(format!("{}?sslmode=prefer", remote("LOCALHOST"))).await, ["unverified_server"]);
    assert_eq!(findings(format!("{}?sslmode=require", remote("LOCALHOST"))).await, ["unverified_server"]);
    assert_eq!(findings(format!("{}?sslmode=disable", server.url())).await, [""; 0]);
}
