//! The findings of the check, one by one.

use crate::{
    certificates::{encrypted, receiver},
    receiver::*,
    *,
};
use postrider_core::{Finding, Severity};

async fn check(options: HttpOptions, destination: &str) -> Vec<Finding> {
    within_timeout(transport(options).check(&[destination])).await.unwrap()
}

/// The one finding of a signed destination, in addition to `plain_http`.
async fn finding(options: HttpOptions, destination: &str) -> Finding {
    let mut found = check(options.with_secret(secret()), destination).await;
    found.retain(|finding| finding.code != "plain_http" || finding.severity == Severity::Problem);
    assert_eq!(found.len(), 1, "{found:?}");
    let finding = found.remove(0);
    assert!(!finding.reason.is_empty() && !finding.fix.is_empty(), "{finding:?}");
    finding
}

fn is(finding: &Finding, severity: Severity, code: &str) {
    assert_eq!((finding.severity, finding.code), (severity, code), "{finding:?}");
}

/// The response to OPTIONS says nothing about a message.
#[tokio::test]
async fn check_of_good_destination_finds_nothing() {
    let (receiver, certificate) = receiver("shop.example", false).await;
    for status in [200, 204, 401, 403, 404, 405, 500, 501, 503] {
        receiver.respond_with(move |_| ScriptedResponse::Status(status));
        let (options, url) = encrypted(&receiver, &certificate);
        let found = check(options.with_secret(secret()), &url).await;
        assert!(found.is_empty(), "{status}: {found:?}");
    }
    let seen = receiver.log().arrived;
    assert!(
        seen.iter().all(|arrived| arrived.method == "OPTIONS" && arrived.body.is_empty()),
        "no message was sent"
    );
}

/// The receiver is reachable. That it disconnects on OPTIONS says nothing about a message.
#[tokio::test]
async fn check_ignores_receiver_without_response_to_options() {
    let (receiver, certificate) = receiver("shop.example", false).await;
    receiver.respond_with(|_| ScriptedResponse::Disconnect);
    let (options, url) = encrypted(&receiver, &certificate);
    let found = check(options.with_secret(secret()), &url).await;
    assert!(found.is_empty(), "{found:?}");
}

#[tokio::test]
async fn check_reports_plain_http() {
    let receiver = Receiver::start().await;
    let shut = HttpOptions::new().allow_network("127.0.0.0/8").unwrap();
    is(&finding(shut, &receiver.url("/")).await, Severity::Problem, "plain_http");
    let found = check(open().with_secret(secret()), &receiver.url("/")).await;
    is(&found[0], Severity::Warning, "plain_http");
    assert_eq!(found.len(), 1, "{found:?}");
}

#[tokio::test]
async fn check_reports_unresolvable_host() {
    let found = finding(open(), "https://nobody.invalid/").await;
    is(&found, Severity::Problem, "unresolvable");
}

#[tokio::test]
async fn check_reports_unreachable_receiver() {
    let found = finding(open(), &format!("http://127.0.0.1:{}/", closed_port().await)).await;
    is(&found, Severity::Problem, "unreachable");
    assert!(found.reason.to_lowercase().contains("refused"), "{found:?}");
}

#[tokio::test]
async fn check_reports_redirect() {
    let receiver = Receiver::start().await;
    receiver
        .respond_with(|_| ScriptedResponse::WithHeader(301, "location", "https://shop.example/".to_owned()));
    is(&finding(open(), &receiver.url("/")).await, Severity::Warning, "redirects");
}

#[tokio::test]
async fn check_reports_bad_certificate() {
    let (expired, certificate) = receiver("shop.example", true).await;
    let (options, url) = encrypted(&expired, &certificate);
    let found = finding(options, &url).await;
    is(&found, Severity::Problem, "bad_certificate");
    assert!(found.reason.contains("expired"), "{found:?}");

    let (other, certificate) = receiver("other.example", false).await;
    let (options, url) = encrypted(&other, &certificate);
    is(&finding(options, &url).await, Severity::Problem, "bad_certificate");
}

#[tokio::test]
async fn check_reports_private_address() {
    let receiver = Receiver::start().await;
    let shut = || HttpOptions::new().allow_http();
    is(&finding(shut(), &receiver.url("/")).await, Severity::Problem, "private_address");
    let by_name = format!("http://localhost:{}/", receiver.address.port());
    is(&finding(shut(), &by_name).await, Severity::Problem, "private_address");
    assert_eq!(receiver.log().connections, 0);
}

#[tokio::test]
async fn check_reports_gone_url() {
    let receiver = Receiver::start().await;
    receiver.respond_with(|_| ScriptedResponse::Status(410));
    is(&finding(open(), &receiver.url("/")).await, Severity::Problem, "gone");

    let transport = transport(open().with_secret(secret()));
    publish_one(&transport, &receiver.url("/")).await.unwrap_err();
    receiver.respond_with(|_| ScriptedResponse::Status(200));
    let found = transport.check(&[&receiver.url("/")]).await.unwrap();
    assert!(found.iter().any(|finding| finding.code == "gone"), "no message is sent to it: {found:?}");
}

#[tokio::test]
async fn check_reports_invalid_url() {
    is(&finding(open(), "orders").await, Severity::Problem, "bad_url");
}

#[tokio::test]
async fn check_reports_unsigned_messages() {
    let (receiver, certificate) = receiver("shop.example", false).await;
    let (options, url) = encrypted(&receiver, &certificate);
    let found = check(options, &url).await;
    is(&found[0], Severity::Note, "unsigned");
    assert_eq!(found.len(), 1, "{found:?}");
}

#[tokio::test]
async fn findings_show_no_password() {
    let url = format!("http://ann:hunter2@127.0.0.1:{}/in?key=hunter2", closed_port().await);
    let found = check(open(), &url).await;
    assert!(!found.is_empty() && !format!("{found:?}").contains("hunter2"), "{found:?}");
}

#[tokio::test]
async fn check_after_close_is_unavailable() {
    let transport = transport(open());
    transport.close().await;
    assert!(matches!(transport.check(&["http://127.0.0.1/"]).await, Err(PublishError::Unavailable { .. })));
}
