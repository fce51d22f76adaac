//! What each request is answered: who is believed, what is taken, and what a consumer's answer becomes.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/http_source.rs"]
mod hooks;
mod support;

use hooks::{Answered, PATH, Post, Server, answer, secret};
use postrider_core::{Answer, Parcel, QueueName, Redelivers, Severity, Source, SourceError};
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
    /// What a request is answered that never reaches a consumer.
    async fn refused(&self, request: Post) -> (u16, String) {
        let answered = soon(request.send(self.server.address)).await.unwrap();
        assert!(!answered.body.contains("v1,"), "{answered:?}");
        (answered.status, answered.code())
    }

    async fn receive(&self) -> Parcel {
        soon(self.source.receive(1)).await.unwrap().remove(0)
    }

    async fn tell(&self, parcel: &Parcel, with: Answer) -> Result<(), SourceError> {
        self.source.answer(&[(parcel.ticket.clone(), with)]).await.remove(0)
    }

    /// What a request is answered when the consumer says this.
    async fn answered(&self, request: Post, with: Answer) -> (Answered, Parcel) {
        let (answered, parcel) = tokio::join!(soon(request.send(self.server.address)), async {
            let parcel = self.receive().await;
            self.tell(&parcel, with).await.unwrap();
            parcel
        });
        (answered.unwrap(), parcel)
    }

    async fn is_done(&self, request: Post) {
        assert_eq!(self.answered(request, Answer::Done).await.0.status, 204);
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
async fn every_answer_has_its_status() {
    let mounted = signed().await;
    let (done, parcel) = mounted.answered(Post::signed("A-1", "17"), Answer::Done).await;
    assert_eq!((done.status, done.body.as_str()), (204, ""));
    assert_eq!((parcel.incoming.id.as_deref(), &parcel.incoming.body[..]), (Some("A-1"), &b"17"[..]));
    let again = |after| Answer::Again { after };
    for (after, seconds) in [(0, "0"), (1, "1"), (1_001, "2"), (90_000, "90"), (36_000_000, "3600")] {
        let with = again(Duration::from_millis(after));
        let (answered, _) = mounted.answered(Post::signed("A-1", "17"), with).await;
        assert_eq!((answered.status, answered.code().as_str()), (503, "again"));
        assert_eq!(answered.headers["retry-after"], seconds, "{after} ms");
    }
    let (refused, _) = mounted.answered(Post::signed("A-1", "17"), Answer::Refuse).await;
    assert_eq!((refused.status, refused.code().as_str()), (422, "refused"));
}

#[tokio::test]
async fn a_missing_signature_is_refused() {
    let mounted = signed().await;
    for name in [ID, TIMESTAMP, SIGNATURE] {
        let request = Post::signed("A-1", "17");
        for request in [request.clone().without(name), request.with(name, "")] {
            assert_eq!(mounted.refused(request).await, (401, "signature_missing".to_owned()), "{name}");
        }
    }
    assert_eq!(mounted.refused(Post::plain("17")).await, (401, "signature_missing".to_owned()));
    mounted.is_done(Post::signed("A-1", "17")).await;
}

#[tokio::test]
async fn a_wrong_signature_is_refused() {
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
        assert_eq!(mounted.refused(request).await, (401, "signature_wrong".to_owned()));
    }
    mounted.is_done(good).await;
}

#[tokio::test]
async fn what_is_not_from_now_is_refused() {
    let mounted =
        mounted(HttpSource::builder(PATH).with_secret(secret()).with_tolerance(Duration::from_secs(600)))
            .await;
    let at = |at| Post::plain("17").sign(&[secret()], "A-1", at);
    assert_eq!(mounted.refused(at(ago(700))).await, (401, "timestamp_too_old".to_owned()));
    assert_eq!(mounted.refused(at(ahead(700))).await, (401, "timestamp_too_new".to_owned()));
    let unreadable = Post::signed("A-1", "17").with(TIMESTAMP, "soon");
    assert_eq!(mounted.refused(unreadable).await, (401, "timestamp_unreadable".to_owned()));
    mounted.is_done(at(ago(500))).await;
    mounted.is_done(at(ahead(500))).await;
    // Five minutes, unless said otherwise.
    let strict = signed().await;
    assert_eq!(strict.refused(at(ago(400))).await, (401, "timestamp_too_old".to_owned()));
    strict.is_done(at(ago(200))).await;
}

/// The sender has not heard the answer, and is told again. What was taken from the wire is of no use when its time has passed.
#[tokio::test]
async fn a_replayed_id_is_a_duplicate_while_its_time_lasts_and_refused_later() {
    let mounted = signed().await;
    let (first, replayed) = (Post::signed("A-1", "17"), Post::signed("A-1", "17"));
    for request in [first.clone(), first, replayed] {
        let (answered, parcel) = mounted.answered(request, Answer::Done).await;
        assert_eq!(answered.status, 204);
        assert_eq!(parcel.incoming.id.as_deref(), Some("A-1"));
    }
    let kept = Post::plain("17").sign(&[secret()], "A-1", ago(301));
    assert_eq!(mounted.refused(kept).await, (401, "timestamp_too_old".to_owned()));
}

#[tokio::test]
async fn an_id_that_is_in_hand_is_refused_for_now() {
    let mounted = signed().await;
    let request = Post::signed("A-1", "17");
    let first = request.begin(mounted.server.address).await.unwrap();
    let parcel = mounted.receive().await;
    let twin = soon(request.send(mounted.server.address)).await.unwrap();
    assert_eq!((twin.status, twin.code().as_str()), (409, "in_hand"));
    assert_eq!(twin.headers["retry-after"], "1");
    mounted.is_done(Post::signed("A-2", "17")).await;
    mounted.tell(&parcel, Answer::Done).await.unwrap();
    assert_eq!(answer(first).await.unwrap().status, 204);
    mounted.is_done(request).await;
}

#[tokio::test]
async fn while_secrets_change_either_is_enough() {
    let mounted = mounted(HttpSource::builder(PATH).with_secret(secret()).with_secret(other_secret())).await;
    let by = |secrets: &[Secret]| Post::plain("17").sign(secrets, "A-1", SystemTime::now());
    mounted.is_done(by(&[secret()])).await;
    mounted.is_done(by(&[other_secret()])).await;
    mounted.is_done(by(&[Secret::new([1; 32]).unwrap(), other_secret()])).await;
    let unknown = by(&[Secret::new([1; 32]).unwrap()]);
    assert_eq!(mounted.refused(unknown).await, (401, "signature_wrong".to_owned()));
}

#[tokio::test]
async fn a_body_that_is_too_large_is_not_read_to_its_end() {
    let mounted = mounted(HttpSource::builder(PATH).with_secret(secret()).with_most_bytes(1_000)).await;
    mounted.is_done(Post::signed("A-1", &"x".repeat(1_000))).await;
    let (request, address) = (Post::signed("A-1", ""), mounted.server.address);
    // It says so, and sends nothing.
    let said = request.begin_with(address, "content-length: 1001").await;
    let answered = answer(said).await.unwrap();
    assert_eq!((answered.status, answered.code().as_str()), (413, "too_large"));
    // It does not say so, and never ends.
    let mut endless = request.begin_with(address, "transfer-encoding: chunked").await;
    endless.write_all(format!("3e9\r\n{}\r\n", "x".repeat(1_001)).as_bytes()).await.unwrap();
    assert_eq!(answer(endless).await.unwrap().status, 413);
}

#[tokio::test]
async fn a_body_that_does_not_come_is_not_waited_for() {
    let short = HttpSource::builder(PATH).with_secret(secret()).with_read_timeout(Duration::from_millis(100));
    let mounted = mounted(short).await;
    let stuck = Post::signed("A-1", "17").begin_with(mounted.server.address, "content-length: 2").await;
    let answered = answer(stuck).await.unwrap();
    assert_eq!((answered.status, answered.code().as_str()), (408, "too_slow"));
}

#[tokio::test]
async fn batches_and_compressed_bodies_are_refused() {
    let mounted = signed().await;
    for batch in ["application/cloudevents-batch+json", "Application/CloudEvents-Batch+JSON; charset=utf-8"] {
        let request = Post::signed("A-1", "[]").with("content-type", batch);
        assert_eq!(mounted.refused(request).await, (415, "batch".to_owned()));
    }
    let zipped = Post::signed("A-1", "17").with("content-encoding", "gzip");
    assert_eq!(mounted.refused(zipped).await, (415, "encoded".to_owned()));
    mounted.is_done(Post::signed("A-1", "17").with("content-encoding", "identity")).await;
}

#[tokio::test]
async fn only_posts_are_messages() {
    let mounted = signed().await;
    for method in ["GET", "PUT", "DELETE", "OPTIONS"] {
        let mut request = Post::signed("A-1", "17");
        request.method = method;
        let answered = soon(request.send(mounted.server.address)).await.unwrap();
        assert_eq!((answered.status, answered.headers["allow"].as_str()), (405, "POST"), "{method}");
    }
}

#[tokio::test]
async fn those_who_find_no_place_are_told_to_come_again() {
    let mounted = mounted(HttpSource::builder(PATH).with_secret(secret()).with_in_hand(2)).await;
    let address = mounted.server.address;
    let first = Post::signed("A-1", "1").begin(address).await.unwrap();
    let taken = mounted.receive().await;
    let second = Post::signed("A-2", "2").begin(address).await.unwrap();
    let other = mounted.receive().await;
    let turned_away = soon(Post::signed("A-3", "3").send(address)).await.unwrap();
    assert_eq!((turned_away.status, turned_away.code().as_str()), (503, "full"));
    assert_eq!(turned_away.headers["retry-after"], "1");
    mounted.tell(&taken, Answer::Done).await.unwrap();
    assert_eq!(answer(first).await.unwrap().status, 204);
    mounted.is_done(Post::signed("A-3", "3")).await;
    mounted.tell(&other, Answer::Done).await.unwrap();
    assert_eq!(answer(second).await.unwrap().status, 204);
}

#[tokio::test]
async fn a_closed_source_sends_everybody_away() {
    let mounted = signed().await;
    let address = mounted.server.address;
    let taken = Post::signed("A-1", "1").begin(address).await.unwrap();
    let parcel = mounted.receive().await;
    mounted.source.close().await;
    for answered in
        [answer(taken).await.unwrap(), soon(Post::signed("A-2", "2").send(address)).await.unwrap()]
    {
        assert_eq!((answered.status, answered.code().as_str()), (503, "closed"));
        assert_eq!(answered.headers["retry-after"], "1");
    }
    assert!(matches!(mounted.tell(&parcel, Answer::Done).await, Err(SourceError::Stale { .. })));
}

#[tokio::test]
async fn the_answer_for_a_client_that_has_gone_is_stale() {
    let mounted = signed().await;
    let request = Post::signed("A-1", "17");
    let client = request.begin(mounted.server.address).await.unwrap();
    let parcel = mounted.receive().await;
    drop(client);
    let tickets = [parcel.ticket.clone()];
    soon(async {
        while mounted.source.extend(&tickets).await.remove(0).is_ok() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert!(matches!(mounted.tell(&parcel, Answer::Done).await, Err(SourceError::Stale { .. })));
    // And so is that of a ticket of another source, whatever its number.
    let other = signed().await;
    let waiting = request.begin(other.server.address).await.unwrap();
    let theirs = other.receive().await;
    assert!(matches!(mounted.tell(&theirs, Answer::Done).await, Err(SourceError::Stale { .. })));
    other.tell(&theirs, Answer::Done).await.unwrap();
    assert_eq!(answer(waiting).await.unwrap().status, 204);
}

#[tokio::test]
async fn events_are_read_in_both_modes() {
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
        let (_, parcel) = mounted.answered(request, Answer::Done).await;
        let letter = parcel.incoming.read(&QueueName::new("orders").unwrap()).unwrap();
        assert_eq!(letter.message.payload(), "17");
        assert_eq!(letter.message.subject().map(postrider_core::SubjectId::as_str), Some("Euro €"));
        assert_eq!(letter.source.as_deref(), Some("/shop"));
        ids.push(letter.id);
    }
    assert_eq!(ids[0], ids[1]);
}

#[tokio::test]
async fn without_signatures_everybody_is_believed() {
    let mounted = mounted(HttpSource::builder(PATH).without_signatures()).await;
    mounted.is_done(Post::plain("17")).await;
    let (_, parcel) = mounted.answered(Post::plain("17").with(ID, "A-1"), Answer::Done).await;
    assert_eq!(parcel.incoming.id.as_deref(), Some("A-1"));
}

#[tokio::test]
async fn settings_that_make_no_sense_are_refused_in_words() {
    let good = || HttpSource::builder(PATH).with_secret(secret());
    let wrong = [
        (HttpSource::builder(PATH), "secret: is missing"),
        (good().without_signatures(), "secret: is of no use"),
        (good().with_in_hand(0), "in_hand: "),
        (good().with_most_bytes(0), "in_hand: "),
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
async fn a_good_source_has_no_findings() {
    assert_eq!(findings(HttpSource::builder(PATH).with_secret(secret()), true).await, []);
}

#[tokio::test]
async fn a_source_that_is_not_mounted_is_told() {
    let builder = HttpSource::builder(PATH).with_secret(secret());
    assert_eq!(findings(builder, false).await, [(Severity::Problem, "not_mounted")]);
}

#[tokio::test]
async fn a_source_that_believes_everybody_is_told() {
    let builder = HttpSource::builder(PATH).without_signatures();
    assert_eq!(findings(builder, true).await, [(Severity::Warning, "unsigned")]);
}

#[tokio::test]
async fn a_tolerance_that_helps_thieves_is_told() {
    let builder = HttpSource::builder(PATH).with_secret(secret()).with_tolerance(Duration::from_secs(3600));
    assert_eq!(findings(builder, true).await, [(Severity::Warning, "wide_tolerance")]);
}

#[tokio::test]
async fn for_how_long_senders_send_again_is_what_was_said() {
    let source = HttpSource::new(PATH, secret()).unwrap();
    assert_eq!(source.redelivers().await.unwrap().within, None);
    let days = Duration::from_secs(3 * 24 * 60 * 60);
    let told = HttpSource::builder(PATH).with_secret(secret()).with_resends_for(days).build().unwrap();
    let Redelivers { within, because } = told.redelivers().await.unwrap();
    assert_eq!(within, Some(days));
    assert!(because.contains("with_resends_for"), "{because}");
}
