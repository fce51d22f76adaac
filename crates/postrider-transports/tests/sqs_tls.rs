//! SQS over TLS.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use postrider_testkit::{
    Kind, shared,
    tls::{CAUSES, Certificates, PlainServer, assert_matrix},
};
use postrider_transports::sqs::{AwsOptions, SqsTransport};

#[tokio::test]
async fn sqs_accepts_only_servers_and_certificates_of_its_options() {
    let test = "sqs_accepts_only_servers_and_certificates_of_its_options";
    let Some(certificates) = Certificates::in_own_process(test) else { return };
    let address = shared::url(Kind::Sqs).replace("http://", "");
    let server = PlainServer::at(address);
    let url = |port| format!("https://localhost:{port}");
    assert_matrix(&certificates, &server, url, &CAUSES, |client| {
        let options = AwsOptions::new().with_client(client).with_region("eu-central-1");
        SqsTransport::new(options.with_credentials("test", "test", None)).unwrap()
    })
    .await;
}
