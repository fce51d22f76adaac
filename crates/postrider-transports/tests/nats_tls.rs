//! NATS over TLS.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use postrider_testkit::{
    Kind, shared,
    tls::{CAUSES, Certificates, PlainServer, Preamble, assert_matrix},
};
use postrider_transports::nats::NatsTransport;

#[tokio::test]
async fn nats_accepts_only_servers_and_certificates_of_its_options() {
    let test = "nats_accepts_only_servers_and_certificates_of_its_options";
    let Some(certificates) = Certificates::in_own_process(test) else { return };
    let address = shared::url(Kind::Nats).replace("nats://", "");
    let server = PlainServer { preamble: Preamble::Greeting, ..PlainServer::at(address) };
    let url = |port| format!("tls://localhost:{port}");
    assert_matrix(&certificates, &server, url, &CAUSES, |client| NatsTransport::connect(client).unwrap())
        .await;
}
