//! NATS over TLS.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/tls.rs"]
mod tls;

use postrider_testkit::{Kind, shared};
use postrider_transports::nats::NatsTransport;
use tls::{CAUSES, Certificates, PlainServer, assert_matrix};

#[tokio::test]
async fn nats_accepts_only_servers_and_certificates_of_its_options() {
    let test = "nats_accepts_only_servers_and_certificates_of_its_options";
    let Some(certificates) = Certificates::in_own_process(test) else { return };
    let address = shared::url(Kind::Nats).replace("nats://", "");
    let server = PlainServer { greets_first: true, ..PlainServer::at(address) };
    let url = |port| format!("tls://localhost:{port}");
    assert_matrix(&certificates, &server, url, &CAUSES, |client| NatsTransport::connect(client).unwrap())
        .await;
}
