//! The responses to requests: authentication, limits, and the status of each ack.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/http_source.rs"]
mod hooks;
mod support;

use hooks::{HttpResponse, PATH, Post, Server, answer, secret};
use postrider_core::{Ack, QueueName, ReceivedMessage, RedeliveryWindow, Severity, Source, SourceError};
use postrider_transports::http::{
    HttpSource, HttpSourceBuilder,
    signature::{ID, SIGNATURE, Secret, TIMESTAMP},
};
use std::time::{Duration, SystemTime};
use support::soon;
use tokio::{io::AsyncWriteExt, task::JoinSet};

/// A source, and the server that it is mounted in.
struct Mounted {
    source: HttpSource,
    server: Server,
    _serving: JoinSet<()>,
}

async fn mounted(builder: HttpSourceBuilder) -> Mounted {
    let mut serving = JoinSet::new();
    let (source, server) = (builder.build().unwrap(), Server::start(&mut serving).await);
    server.show(&source);
    Mounted { source, server, _serving: serving }
}

async fn signed() -> Mounted {
    mounted(HttpSource::builder(PATH).with_secret(secret())).await
}

impl Mounted {
    /// The response to a request that never reaches a consumer.
    async fn refusal(&self, request: Post) -> (u16, String) {
        let response = soon(request.send(self.server.address)).await.unwrap();
        assert!(!response.body.contains("v1,"), "{response:?}");
        (response.status, response.code())
    }

    async fn receive(&self) -> ReceivedMessage {
        soon(self.source.receive(1)).await.unwrap().remove(0)
    }

    async fn ack(&self, message: &ReceivedMessage, with: Ack) -> Result<(), SourceError> {
        self.source.ack(&[(message.ack_handle.clone(), with)]).await.remove(0)
    }

    /// The response to a request whose message is acked with `with`.
    async fn send_and_ack(&self, request: Post, with: Ack) -> (HttpResponse, ReceivedMessage) {
        let (response, message) = tokio::join!(soon(request.send(self.server.address)), async {
            let message = self.receive().await;
            self.ack(&message, with).await.unwrap();
            message
        });
        (response.unwrap(), message)
    }

    async fn accepts(&self, request: Post) {
        assert_eq!(self.send_and_ack(request, Ack::Ack).await.0.status, 204);
    }
}

fn ago(seconds: u64) -> SystemTime {
    SystemTime::now() - Duration::from_secs(seconds)
}

fn ahead(seconds: u64) -> SystemTime {
    SystemTime::now() + Duration::from_secs(seconds)
}

fn other_secret() -> Secret {
    Secret::new([9; 32]).unwrap()
}

#[tokio::test]
async fn ack_nack_and_reject_have_their_statuses() {
    let mounted = signed().await;
    let (done, message) = mounted.send_and_ack(Post::signed("A-1", "17"), Ack::Ack).await;
    assert_eq!((done.status, done.body.as_str()), (204, ""));
    assert_eq!((message.incoming.id.as_deref(), &message.incoming.body[..]), (Some("A-1"), &b"17"[..]));
    let again = |after| Ack::Nack { after };
    for (after, seconds) in [(0, "0"), (1, "1"), (1_001, "2"), (90_000, "90"), (36_000_000, "3600")] {
        let with = again(Duration::from_millis(after));
        let (response, _) = mounted.send_and_ack(Post::signed("A-1", "17"), with).await;
        assert_eq!((response.status, response.code().as_str()), (503, "nacked"));
        assert_eq!(response.headers["retry-after"], seconds, "{after} ms");
    }
    let (refused, _) = mounted.send_and_ack(Post::signed("A-1", "17"), Ack::Reject).await;
    assert_eq!((refused.status, refused.code().as_str()), (422, "rejected"));
}

#[tokio::test]
async fn missing_signature_is_refused() {
    let mounted = signed().await;
    for name in [ID, TIMESTAMP, SIGNATURE] {
        let request = Post::signed("A-1", "17");
        for request in [request.clone().without(name), request.with(name, "")] {
            assert_eq!(mounted.refusal(request).await, (401, "signature_missing".to_owned()), "{name}");
        }
    }
    assert_eq!(mounted.refusal(Post::plain("17")).await, (401, "signature_missing".to_owned()));
    mounted.accepts(Post::signed("A-1", "17")).await;
}

#[tokio::test]
async fn wrong_signature_is_refused() {
    let mounted = signed().await;
    let mut changed = Post::signed("A-1", "17");
    changed.body = b"18".to_vec();
    let good = Post::signed("A-1", "17");
    let by_another = Post::plain("17").sign(&[other_secret()], "A-1", SystemTime::now());
    let renamed = good.clone().with(ID, "A-2");
    let renewed = Post::plain("17")
        .sign(&[secret()], "A-1", ago(10))
        .with(TIMESTAMP, &postrider_transports::http::signature::timestamp(SystemTime::now()));
    let nonsense = good.clone().with(SIGNATURE, "v1,nonsense");
    for request in [changed, by_another, renamed, renewed, nonsense] {
        assert_eq!(mounted.refusal(request).await, (401, "signature_wrong".to_owned()));
    }
    mounted.accepts(good).await;
}

#[tokio::test]
async fn timestamp_outside_tolerance_is_refused() {
    let mounted =
        mounted(HttpSource::builder(PATH).with_secret(secret()).with_tolerance(Duration::from_secs(600)))
            .await;
    let at = |at| Post::plain("17").sign(&[secret()], "A-1", at);
    assert_eq!(mounted.refusal(at(ago(700))).await, (401, "timestamp_too_old".to_owned()));
    assert_eq!(mounted.refusal(at(ahead(700))).await, (401, "timestamp_too_new".to_owned()));
    let unreadable = Post::signed("A-1", "17").with(TIMESTAMP, "soon");
    assert_eq!(mounted.refusal(unreadable).await, (401, "timestamp_unreadable".to_owned()));
    mounted.accepts(at(ago(500))).await;
    mounted.accepts(at(ahead(500))).await;
    // The default is five minutes.
    let strict = signed().await;
    assert_eq!(strict.refusal(at(ago(400))).await, (401, "timestamp_too_old".to_owned()));
    strict.accepts(at(ago(200))).await;
}

/// A sender that missed the response gets it again. A captured request is refused after the tolerance.
#[tokio::test]
async fn replayed_request_is_a_duplicate_within_tolerance_and_refused_after() {
    let mounted = signed().await;
    let (first, replayed) = (Post::signed("A-1", "17"), Post::signed("A-1", "17"));
    for request in [first.clone(), first, replayed] {
        let (response, message) = mounted.send_and_ack(request, Ack::Ack).await;
        assert_eq!(response.status, 204);
        assert_eq!(message.incoming.id.as_deref(), Some("A-1"));
    }
    let kept = Post::plain("17").sign(&[secret()], "A-1", ago(301));
    assert_eq!(mounted.refusal(kept).await, (401, "timestamp_too_old".to_owned()));
}

#[tokio::test]
async fn id_in_flight_gets_conflict_with_retry_after() {
    let mounted = signed().await;
    let request = Post::signed("A-1", "17");
    let first = request.begin(mounted.server.address).await.unwrap();
    let message = mounted.receive().await;
    let duplicate = soon(request.send(mounted.server.address)).await.unwrap();
    assert_eq!((duplicate.status, duplicate.code().as_str()), (409, "in_flight"));
    assert_eq!(duplicate.headers["retry-after"], "1");
    mounted.accepts(Post::signed("A-2", "17")).await;
    mounted.ack(&message, Ack::Ack).await.unwrap();
    assert_eq!(answer(first).await.unwrap().status, 204);
    mounted.accepts(request).await;
}

#[tokio::test]
async fn rotated_secrets_verify_with_either() {
    let mounted = mounted(HttpSource::builder(PATH).with_secret(secret()).with_secret(other_secret())).await;
    let by = |secrets: &[Secret]| Post::plain("17").sign(secrets, "A-1", SystemTime::now());
    mounted.accepts(by(&[secret()])).await;
    mounted.accepts(by(&[other_secret()])).await;
    mounted.accepts(by(&[Secret::new([1; 32]).unwrap(), other_secret()])).await;
    let unknown = by(&[Secret::new([1; 32]).unwrap()]);
    assert_eq!(mounted.refusal(unknown).await, (401, "signature_wrong".to_owned()));
}

#[tokio::test]
async fn oversized_body_is_refused_without_reading_it() {
    let mounted = mounted(HttpSource::builder(PATH).with_secret(secret()).with_max_bytes(1_000)).await;
    mounted.accepts(Post::signed("A-1", &"x".repeat(1_000))).await;
    let (request, address) = (Post::signed("A-1", ""), mounted.server.address);
    // The declared length is too large, and no body follows.
    let said = request.begin_with(address, "content-length: 1001").await;
    let response = answer(said).await.unwrap();
    assert_eq!((response.status, response.code().as_str()), (413, "too_large"));
    // No length is declared, and the body never ends.
    let mut endless = request.begin_with(address, "transfer-encoding: chunked").await;
    endless.write_all(format!("3e9\r\n{}\r\n", "x".repeat(1_001)).as_bytes()).await.unwrap();
    assert_eq!(answer(endless).await.unwrap().status, 413);
}

#[tokio::test]
async fn slow_body_times_out() {
    let short = HttpSource::builder(PATH).with_secret(secret()).with_read_timeout(Duration::from_millis(100));
    let mounted = mounted(short).await;
    let stuck = Post::signed("A-1", "17").begin_with(mounted.server.address, "content-length: 2").await;
    let response = answer(stuck).await.unwrap();
    assert_eq!((response.status, response.code().as_str()), (408, "too_slow"));
}

#[tokio::test]
async fn batches_and_compressed_bodies_are_refused() {
    let mounted = signed().await;
    for batch in ["application/cloudevents-batch+json", "Application/CloudEvents-Batch+JSON; charset=utf-8"] {
        let request = Post::signed("A-1", "[]").with("content-type", batch);
        assert_eq!(mounted.refusal(request).await, (415, "batch".to_owned()));
    }
    let zipped = Post::signed("A-1", "17").with("content-encoding", "gzip");
    assert_eq!(mounted.refusal(zipped).await, (415, "encoded".to_owned()));
    mounted.accepts(Post::signed("A-1", "17").with("content-encoding", "identity")).await;
}

#[tokio::test]
async fn other_methods_are_not_allowed() {
    let mounted = signed().await;
    for method in ["GET", "PUT", "DELETE", "OPTIONS"] {
        let mut request = Post::signed("A-1", "17");
        request.method = method;
        let response = soon(request.send(mounted.server.address)).await.unwrap();
        assert_eq!((response.status, response.headers["allow"].as_str()), (405, "POST"), "{method}");
    }
}

#[tokio::test]
async fn requests_beyond_max_in_flight_get_retry_after() {
    let mounted = mounted(HttpSource::builder(PATH).with_secret(secret()).with_max_in_flight(2)).await;
    let address = mounted.server.address;
    let first = Post::signed("A-1", "1").begin(address).await.unwrap();
    let taken = mounted.receive().await;
    let second = Post::signed("A-2", "2").begin(address).await.unwrap();
    let other = mounted.receive().await;
    let overflow = soon(Post::signed("A-3", "3").send(address)).await.unwrap();
    assert_eq!((overflow.status, overflow.code().as_str()), (503, "full"));
    assert_eq!(overflow.headers["retry-after"], "1");
    mounted.ack(&taken, Ack::Ack).await.unwrap();
    assert_eq!(answer(first).await.unwrap().status, 204);
    mounted.accepts(Post::signed("A-3", "3")).await;
    mounted.ack(&other, Ack::Ack).await.unwrap();
    assert_eq!(answer(second).await.unwrap().status, 204);
}

#[tokio::test]
async fn closed_source_ends_pending_requests_and_refuses_new_ones() {
    let mounted = signed().await;
    let address = mounted.server.address;
    let taken = Post::signed("A-1", "1").begin(address).await.unwrap();
    let message = mounted.receive().await;
    mounted.source.close().await;
    for response in
        [answer(taken).await.unwrap(), soon(Post::signed("A-2", "2").send(address)).await.unwrap()]
    {
        assert_eq!((response.status, response.code().as_str()), (503, "closed"));
        assert_eq!(response.headers["retry-after"], "1");
    }
    assert!(matches!(mounted.ack(&message, Ack::Ack).await, Err(SourceError::Stale { .. })));
}

#[tokio::test]
async fn ack_for_disconnected_client_is_stale() {
    let mounted = signed().await;
    let request = Post::signed("A-1", "17");
    let client = request.begin(mounted.server.address).await.unwrap();
    let message = mounted.receive().await;
    drop(client);
    let tickets = [message.ack_handle.clone()];
    soon(async {
        while mounted.source.extend(&tickets).await.remove(0).is_ok() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert!(matches!(mounted.ack(&message, Ack::Ack).await, Err(SourceError::Stale { .. })));
    // So is the ack for a handle of another source, whatever its number.
    let other = signed().await;
    let waiting = request.begin(other.server.address).await.unwrap();
    let theirs = other.receive().await;
    assert!(matches!(mounted.ack(&theirs, Ack::Ack).await, Err(SourceError::Stale { .. })));
    other.ack(&theirs, Ack::Ack).await.unwrap();
    assert_eq!(answer(waiting).await.unwrap().status, 204);
}

#[tokio::test]
async fn events_are_decoded_in_binary_and_structured_mode() {
    let mounted = signed().await;
    let binary = Post::signed("msg_1", "17")
        .with("content-type", "application/json")
        .with("ce-specversion", "1.0")
        .with("ce-id", "A-1")
        .with("ce-source", "/shop")
        .with("ce-type", "order.placed")
        .with("ce-subject", "Euro%20%E2%82%AC");
    let event = r#"{"specversion":"1.0","id":"A-1","source":"/shop","type":"order.placed","subject":"Euro €","data":17}"#;
    let structured = Post::signed("msg_1", event).with("content-type", "application/cloudevents+json");
    let mut ids = Vec::new();
    for request in [binary, structured] {
        let (_, message) = mounted.send_and_ack(request, Ack::Ack).await;
        let letter = message.incoming.read(&QueueName::new("orders").unwrap()).unwrap();
        assert_eq!(letter.message.payload(), "17");
        assert_eq!(letter.message.subject().map(postrider_core::SubjectId::as_str), Some("Euro €"));
        assert_eq!(letter.source.as_deref(), Some("/shop"));
        ids.push(letter.id);
    }
    assert_eq!(ids[0], ids[1]);
}

#[tokio::test]
async fn without_signatures_accepts_unsigned_requests() {
    let mounted = mounted(HttpSource::builder(PATH).without_signatures()).await;
    mounted.accepts(Post::plain("17")).await;
    let (_, message) = mounted.send_and_ack(Post::plain("17").with(ID, "A-1"), Ack::Ack).await;
    assert_eq!(message.incoming.id.as_deref(), Some("A-1"));
}

#[tokio::test]
async fn invalid_settings_are_refused_with_reason() {
    let good = || HttpSource::builder(PATH).with_secret(secret());
    let wrong = [
        (HttpSource::builder(PATH), "secret: is missing"),
        (good().without_signatures(), "secret: is set together"),
        (good().with_max_in_flight(0), "in_flight: "),
        (good().with_max_bytes(0), "in_flight: "),
        (good().with_tolerance(Duration::from_millis(900)), "tolerance: "),
        (good().with_read_timeout(Duration::ZERO), "tolerance: "),
    ];
    for (builder, expected) in wrong {
        let error = builder.build().map(|_| ()).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
    }
    for path in ["", "hooks", "/{id}", "/*rest", "/:id", "/a b", "/a?b", "/ä"] {
        let error = HttpSource::new(path, secret()).map(|_| ()).unwrap_err().to_string();
        assert!(error.starts_with("path: "), "{path}: {error}");
    }
    for path in ["/", "//", "/a/b.c~d-e_f/"] {
        drop(HttpSource::new(path, secret()).unwrap().router());
    }
    assert!(!format!("{:?} {:?}", good(), good().build()).contains("7, 7"), "secrets are not shown");
}

async fn findings(builder: HttpSourceBuilder, is_mounted: bool) -> Vec<(Severity, &'static str)> {
    let source = builder.build().unwrap();
    let _router = is_mounted.then(|| source.router());
    let findings = source.check().await.unwrap();
    assert!(findings.iter().all(|finding| !finding.reason.is_empty() && !finding.fix.is_empty()));
    findings.iter().map(|finding| (finding.severity, finding.code)).collect()
}

#[tokio::test]
async fn check_of_good_source_finds_nothing() {
    assert_eq!(findings(HttpSource::builder(PATH).with_secret(secret()), true).await, []);
}

#[tokio::test]
async fn check_reports_source_that_is_not_mounted() {
    let builder = HttpSource::builder(PATH).with_secret(secret());
    assert_eq!(findings(builder, false).await, [(Severity::Problem, "not_mounted")]);
}

#[tokio::test]
async fn check_reports_unsigned_source() {
    let builder = HttpSource::builder(PATH).without_signatures();
    assert_eq!(findings(builder, true).await, [(Severity::Warning, "unsigned")]);
}

#[tokio::test]
async fn check_reports_wide_tolerance() {
    let builder = HttpSource::builder(PATH).with_secret(secret()).with_tolerance(Duration::from_secs(3600));
    assert_eq!(findings(builder, true).await, [(Severity::Warning, "wide_tolerance")]);
}

#[tokio::test]
async fn redelivery_window_is_the_resend_window() {
    let source = HttpSource::new(PATH, secret()).unwrap();
    assert_eq!(source.redelivery_window().await.unwrap().within, None);
    let days = Duration::from_secs(3 * 24 * 60 * 60);
    let told = HttpSource::builder(PATH).with_secret(secret()).with_resend_window(days).build().unwrap();
    let RedeliveryWindow { within, reason } = told.redelivery_window().await.unwrap();
    assert_eq!(within, Some(days));
    assert!(reason.contains("with_resend_window"), "{reason}");
}
