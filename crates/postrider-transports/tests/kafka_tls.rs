//! Kafka over TLS. The client is librdkafka with OpenSSL, whose error texts differ.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/kafka.rs"]
mod server;
mod support;
#[path = "support/tls.rs"]
mod tls;

use postrider_transports::kafka::KafkaTransport;
use tls::{Causes, Certificates, PlainServer, assert_matrix};

const CAUSES: Causes = Causes {
    untrusted: &["unable to get local issuer certificate", "self-signed certificate in certificate chain"],
    expired: &["certificate has expired"],
    other_name: &["hostname mismatch"],
    client_certificate: &["alert certificate required", "alert unknown ca", "alert decrypt error"],
};

#[tokio::test]
async fn kafka_accepts_only_servers_and_certificates_of_its_options() {
    let test = "kafka_accepts_only_servers_and_certificates_of_its_options";
    let Some(certificates) = Certificates::in_own_process(test) else { return };
    // The server advertises the port of the proxy.
    let (broker, port) = server::behind_a_proxy().await;
    let address = format!("127.0.0.1:{}", broker.port());
    let server = PlainServer { address, proxy_port: port, greets_first: false };
    let url = |port| format!("kafka+ssl://localhost:{port}");
    assert_matrix(&certificates, &server, url, &CAUSES, |client| KafkaTransport::connect(client).unwrap())
        .await;
}
