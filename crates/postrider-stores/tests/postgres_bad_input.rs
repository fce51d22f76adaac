//! Invalid input: each error names the field and the remedy, and nothing is staged.

#![cfg(feature = "postgres")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/postgres.rs"]
mod support;

use postrider_core::{
    ClaimRequest, Error, Invalid, Limits, Message, MessageBuilder, MessageId, OnFailure, Outbox, OutboxExt,
    QueueName, QueuePolicy, Reason, Store, TimerName,
    inspect::{Action, Operate},
    schema::Schema,
};
use postrider_stores::postgres::{PostgresNames, PostgresOptions, PostgresOutbox};
use postrider_testkit::Fixture;
use std::time::{Duration, SystemTime};
use support::PostgresFixture;

fn order() -> MessageBuilder {
    Message::builder("orders").json(&1)
}

fn traced() -> MessageBuilder {
    order().traceparent("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
}

/// Invalid messages, by their defect.
fn bad_messages() -> Vec<(&'static str, MessageBuilder)> {
    let long = |len| "x".repeat(len);
    let mut many_headers = order();
    for n in 0..65 {
        many_headers = many_headers.header(format!("h{n}"), "v");
    }
    vec![
        ("queue is empty", Message::builder("")),
        ("queue is too long", Message::builder(long(256))),
        ("queue has a space", Message::builder("my orders")),
        ("queue has a line break", Message::builder("orders\n")),
        ("queue has a null", Message::builder("orders\0")),
        ("key is empty", order().key("")),
        ("key is too long", order().key(long(256))),
        ("key has a null", order().key("a\0b")),
        ("type has a space", order().event_type("order placed")),
        ("type is empty", order().event_type("")),
        ("tenant is too long", order().tenant(long(300))),
        ("subject has an escape", order().subject("\u{1b}[31mred")),
        ("timer is empty", order().timer("")),
        ("timer is too long", order().timer(long(256))),
        ("extending timer has a tab", order().extending_timer("a\tb")),
        ("content type is empty", order().content_type("")),
        ("content type has a line break", order().content_type("text/plain\r\nx: y")),
        ("correlation id is too long", order().correlation_id(long(256))),
        ("causation id is empty", order().causation_id("")),
        ("traceparent is no traceparent", order().traceparent("not-a-trace")),
        (
            "traceparent is all zeros",
            order().traceparent(format!("00-{}-{}-01", "0".repeat(32), "0".repeat(16))),
        ),
        ("tracestate is alone", order().tracestate("a=1")),
        ("tracestate is too long", traced().tracestate(format!("a={}", long(511)))),
        ("tracestate has a line break", traced().tracestate("a=1\n")),
        ("header name is empty", order().header("", "v")),
        ("header name has a colon", order().header("a:b", "v")),
        ("header name is too long", order().header(long(129), "v")),
        ("header is reserved", order().header("Content-Type", "text/plain")),
        ("header has a reserved prefix", order().header("ce-id", "1")),
        ("header value is too long", order().header("note", long(8 * 1024 + 1))),
        ("header value has a line break", order().header("note", "a\r\nx: y")),
        ("too many headers", many_headers),
        ("two due times", order().due_after(Duration::from_secs(1)).due_at(SystemTime::now())),
        ("due too far ahead", order().due_after(Duration::MAX)),
        ("due before the epoch", order().due_at(SystemTime::UNIX_EPOCH - Duration::from_secs(1))),
        (
            "due in the year 3000",
            order().due_at(SystemTime::UNIX_EPOCH + Duration::from_secs(32_503_680_000)),
        ),
        ("payload cannot be encoded", Message::builder("orders").json(&Unencodable)),
        ("payload is too large", Message::builder("orders").payload(vec![0; 1025])),
    ]
}

struct Unencodable;

impl serde::Serialize for Unencodable {
    fn serialize<S: serde::Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
        Err(serde::ser::Error::custom("a map key must be a string"))
    }
}

#[tokio::test]
async fn invalid_message_is_refused_with_field_name_and_stages_nothing() {
    let limits = Limits::default().with_payload_bytes(1024).with_batch_bytes(2048);
    let fixture = PostgresFixture::open(|options| options.with_limits(limits)).await;
    let outbox = fixture.outbox();
    let mut report = String::new();
    let mut note = |case: &str, error: Error| {
        assert!(matches!(error, Error::Invalid(_)), "{case}: {error:?}");
        report.push_str(&format!("{case}\n    {error}\n"));
    };
    let mut tx = fixture.begin().await;
    for (case, message) in bad_messages() {
        note(case, outbox.stage(&mut tx, message).await.unwrap_err());
    }
    let fits = |bytes: usize| Message::builder("orders").payload(vec![0; bytes]).build().unwrap();
    let third_too_large = [fits(1), fits(1), fits(1025)];
    note(
        "one payload of a batch is too large",
        outbox.stage_all(&mut tx, &third_too_large).await.unwrap_err(),
    );
    let too_much = [fits(1000), fits(1000), fits(1000)];
    note("batch is too large", outbox.stage_all(&mut tx, &too_much).await.unwrap_err());
    // The caller's transaction is still usable.
    fixture.commit(tx).await;
    assert!(fixture.inspect().counts().await.unwrap().is_empty(), "no queue was made, nothing was staged");
    insta::assert_snapshot!("bad_messages", report);
}

#[tokio::test]
async fn invalid_argument_is_refused_with_its_name() {
    let fixture = PostgresFixture::new().await;
    let orders = QueueName::new("orders").unwrap();
    let mut report = String::new();
    let mut note = |case: &str, error: String| report.push_str(&format!("{case}\n    {error}\n"));

    for (case, schema, prefix) in [
        ("schema is empty", "", ""),
        ("schema is quoted", "\"postrider\"", ""),
        ("schema is upper case", "Postrider", ""),
        ("schema ends the statement", "x; drop schema public cascade; --", ""),
        ("prefix begins with a digit", "postrider", "1_"),
        ("prefix has a dot", "postrider", "a.b"),
        ("prefix is too long", "postrider", "a_prefix_of_exactly_forty_four_bytes_is_too_"),
    ] {
        note(case, PostgresNames::new(schema, prefix).unwrap_err().to_string());
    }
    note("url is no url", PostgresOptions::new("shop").unwrap_err().to_string());
    note("id is no id", "17".parse::<MessageId>().unwrap_err().to_string());
    note("reason is unknown", "tired".parse::<Reason>().unwrap_err().to_string());
    let unkeepable = [Duration::ZERO, Duration::from_millis(9), Duration::from_secs(86_401)];
    for lease in unkeepable {
        let request = ClaimRequest::new(orders.clone(), 1).with_lease_for(lease);
        note("lease cannot be kept", fixture.store.claim(&request).await.unwrap_err().to_string());
    }
    note("renewal cannot be kept", fixture.store.renew(&[], Duration::ZERO).await.unwrap_err().to_string());
    let keep_nothing = QueuePolicy::default().with_keep_for(Duration::ZERO);
    note("kept for no time", fixture.store.declare(&orders, &keep_nothing).await.unwrap_err().to_string());
    let mut tx = fixture.begin().await;
    fixture.outbox().stage(&mut tx, order()).await.unwrap();
    fixture.commit(tx).await;
    let ordered = QueuePolicy::by_key(OnFailure::Block);
    note(
        "ordering of a queue in use",
        fixture.store.declare(&orders, &ordered).await.unwrap_err().to_string(),
    );
    for (case, action) in [
        ("nobody acts", Action::new("", "because")),
        ("no reason is given", Action::new("ada", "")),
        ("actor has a line break", Action::new("ada\n", "because")),
    ] {
        note(case, fixture.store.discard(&orders, &[], &action).await.unwrap_err().to_string());
    }
    insta::assert_snapshot!("bad_arguments", report);
}

/// A duplicate message is not an error: the report says so.
#[tokio::test]
async fn failed_statement_stages_nothing() {
    let fixture = PostgresFixture::new().await;
    let elsewhere = PostgresOutbox::new(PostgresNames::new("elsewhere", "").unwrap());
    let mut tx = fixture.begin().await;
    let error = elsewhere.stage(&mut tx, order()).await.unwrap_err();
    assert!(matches!(error, Error::SchemaMismatch(_)), "{error:?}");
    fixture.rollback(tx).await;
    let mut tx = fixture.begin().await;
    let timer = TimerName::new("t").unwrap();
    let error =
        elsewhere.cancel_timer(&mut tx, &QueueName::new("orders").unwrap(), &timer).await.unwrap_err();
    assert!(matches!(error, Error::SchemaMismatch(_)), "{error:?}");
}

/// A thousand hostile names, none of which reaches SQL.
#[test]
fn hostile_identifiers_never_reach_sql() {
    let parts =
        ["\"", "'", ";", "--", "/*", "\\", " ", "\n", "\0", ".", "$$", "ä", "A", "%", "{ready}", "\u{202e}"];
    let mut refused = 0;
    for first in parts {
        for second in parts {
            for whole in [
                format!("{first}x{second}"),
                format!("x{first}{second}"),
                format!("{first}{second}"),
                format!("x{first}y{second}z"),
            ] {
                let invalid: [Result<PostgresNames, Invalid>; 2] =
                    [PostgresNames::new(whole.clone(), ""), PostgresNames::new("x", whole.clone())];
                assert!(invalid.iter().all(Result::is_err), "{whole:?}");
                refused += 1;
            }
        }
    }
    assert!(refused > 1_000);
}
