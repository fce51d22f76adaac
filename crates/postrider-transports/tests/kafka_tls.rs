//! Kafka over TLS. The client is librdkafka with OpenSSL, whose text for a refused client certificate differs.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/kafka.rs"]
mod server;
mod support;

use postrider_testkit::tls::{CAUSES, Causes, Certificates, PlainServer, assert_matrix};
use postrider_transports::kafka::KafkaTransport;
use std::time::Duration;

const KAFKA_CAUSES: Causes =
    Causes { client_certificate: &["alert certificate required", "alert unknown ca"], ..CAUSES };

#[tokio::test]
async fn kafka_accepts_only_servers_and_certificates_of_its_options() {
    let test = "kafka_accepts_only_servers_and_certificates_of_its_options";
    let Some(certificates) = Certificates::in_own_process(test) else { return };
    // The server advertises the port of the proxy.
    let (broker, port) = server::behind_a_proxy().await;
    let address = format!("127.0.0.1:{}", broker.port());
    let timeout = Duration::from_secs(4);
    let server = PlainServer { proxy_port: port, timeout, ..PlainServer::at(address) };
    let url = |port| format!("kafka+ssl://localhost:{port}");
    assert_matrix(&certificates, &server, url, &KAFKA_CAUSES, |client| {
        KafkaTransport::connect(client).unwrap()
    })
    .await;
}
