//! Redis over TLS.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use postrider_testkit::{
    Kind, shared,
    tls::{CAUSES, Certificates, PlainServer, assert_matrix},
};
use postrider_transports::redis::RedisTransport;

#[tokio::test]
async fn redis_accepts_only_servers_and_certificates_of_its_options() {
    let test = "redis_accepts_only_servers_and_certificates_of_its_options";
    let Some(certificates) = Certificates::in_own_process(test) else { return };
    let address = shared::url(Kind::Redis).replace("redis://", "");
    let server = PlainServer::at(address);
    let url = |port| format!("rediss://localhost:{port}");
    assert_matrix(&certificates, &server, url, &CAUSES, |client| RedisTransport::connect(client).unwrap())
        .await;
}
