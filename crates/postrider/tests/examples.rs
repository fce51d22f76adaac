//! The examples that need no server print what they promise.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[allow(dead_code, reason = "the tests of the transport need more of it")]
#[path = "../../postrider-transports/tests/http/receiver.rs"]
mod receiver;
mod support;

use support::{run, run_as_printed_with};

#[tokio::test]
async fn quickstart_runs_a_worker_and_a_relay() {
    let printed = run("quickstart", &[]).await;
    let (confirmation, event) = printed.split_once('\n').unwrap();
    assert_eq!(confirmation, "confirming order 17, attempt 1");
    let event: serde_json::Value = serde_json::from_str(event.trim_end()).unwrap();
    assert_eq!(event["destination"], "shipment.requested");
}

#[test]
fn quickstart_is_the_code_of_the_readme() {
    let readme = include_str!("../../../README.md");
    let (_, after) = readme.split_once("```rust,no_run\n").unwrap();
    let (code, _) = after.split_once("```").unwrap();
    let example = include_str!("../../../examples/quickstart.rs");
    let squeezed = |text: &str| text.split_whitespace().collect::<String>();
    assert!(squeezed(example).ends_with(&squeezed(code)), "examples/quickstart.rs differs from the README");
}

#[tokio::test]
async fn worker_example_retries_dead_letters_and_shuts_down_gracefully() {
    assert_eq!(
        run("worker", &[]).await,
        r#"mail to ann
mail to bob
order 1, attempt 1
order 2, attempt 1
order 2, attempt 2
order 3, attempt 1
order 4, attempt 1 … stop!
stopped cleanly: true
5 delivered, 1 retried, 1 dead
dead letter {"order":3}: NoSuchCustomer
"#
    );
}

#[tokio::test]
async fn relay_example_delivers_to_each_destination_independently() {
    assert_eq!(
        run("relay", &[]).await,
        r#"5 claimed: 3 delivered, 1 to be retried, 1 dead
a minute later: 1 delivered
billing has {"order":2,"total":5000} at orders.order.placed
billing has {"order":3,"total":70} at orders.order.placed
audit has {"order":2,"total":5000} at large-orders
billing never gets {"order":1,"total":20}: PublishRejected
"#
    );
}

#[tokio::test]
async fn typed_handler_example_shows_every_result() {
    assert_eq!(
        run("typed_handler", &[]).await,
        r#"2 delivered: 42 in the till
2 to be retried, 1 snoozed, 3 dead
scheduled: {"customer":"eve","amount":"much"}: ParseIntError
scheduled: {"customer":"busy","amount":"2"}: TooManyRequests
scheduled: {"customer":"new","amount":"3"}: no failure
dead: {"customer":"nobody","amount":"1"}: NoSuchCustomer, rejected
dead: {"amount":5}: UnknownType, rejected
dead: {: CodecError, undecodable
"#
    );
}

#[tokio::test]
async fn transactional_handler_example_has_every_effect_once() {
    assert_eq!(
        run("transactional_handler", &[]).await,
        "3 orders packed, 1 failure\nparcels: [1, 2, 3]\n3 parcels sent\n"
    );
}

#[tokio::test]
async fn erase_customer_example_ends_every_call_in_a_known_state() {
    assert_eq!(
        run("erase_customer", &[]).await,
        r#"customer 17 is deleted here, and 3 calls are staged
calls to payments: 3, keys: 1
calls to mail: 1, keys: 1
calls to archive: 2, keys: 1
0 pending, 0 in_flight, 0 failed, 0 scheduled, 3 succeeded, 0 abandoned
erased everywhere: customer-17
erased from the queues: 1 scheduled, 3 delivered; 0 left
ledger, all: completed, erased, erased
ledger, archive: scheduled, succeeded
ledger, mail: succeeded
ledger, payments: succeeded
ledger verified: 7 events
"#
    );
}

#[tokio::test]
async fn timers_example_extends_one_timer_and_cancels_another() {
    assert_eq!(
        run("timers", &[]).await,
        "minute 3: a click; order 17 is paid, reminder cancelled: true\n\
         minute 4: tea is ready\n\
         minute 8: signed out after a click\n\
         minute 10: pay the rent\n"
    );
}

#[tokio::test]
async fn cron_example_stages_each_night_once() {
    assert_eq!(
        run("cron", &[]).await,
        "the schedule begins: one staged 0, the other 0\n\
         a night: one staged 1, the other 0\n  \
           sales, scheduled at 2026-03-29T01:00:00.000Z\n\
         another night: one staged 1, the other 0\n  \
           sales, scheduled at 2026-03-30T01:00:00.000Z\n\
         a week without a scheduler: one staged 2, the other 0\n  \
           sales, scheduled at 2026-04-05T01:00:00.000Z\n  \
           sales, scheduled at 2026-04-06T01:00:00.000Z\n"
    );
}

#[tokio::test]
async fn testing_example_passes_weeks_in_no_time() {
    assert_eq!(
        run("testing", &[]).await,
        "the sixth attempt: Reject, GivenUp\n\
         PaymentDue { order: 17 } in 14 days\n\
         1 retried, 1 lost, 1 delivered\n\
         dead: NoSuchOrder\n"
    );
}

#[tokio::test]
async fn relay_broker_example_settles_by_the_reply_of_a_webhook() {
    use postrider::transports::http::signature::{Secret, Signed};
    use receiver::{Receiver, ScriptedResponse};

    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    let receiver = Receiver::start().await;
    receiver
        .respond_with(|arrived| ScriptedResponse::Status(if &arrived.body[..] == b"1" { 204 } else { 413 }));
    assert_eq!(
        run_as_printed_with(
            "http",
            "relay_broker",
            &receiver.url("/hooks"),
            "orders",
            &[("WEBHOOK_SECRET", SECRET)]
        )
        .await,
        "warning plain_http: use https\n1 published, 0 to be retried, 1 dead\n"
    );
    let secret = Secret::parse(SECRET).unwrap();
    let orders: Vec<_> =
        receiver.log().arrived.into_iter().filter(|arrived| arrived.method == "POST").collect();
    assert_eq!(orders.len(), 2);
    for order in orders {
        assert_eq!(order.path, "/hooks/orders");
        let signed = Signed {
            id: order.header("webhook-id"),
            timestamp: order.header("webhook-timestamp"),
            signature: order.header("webhook-signature"),
            body: &order.body,
        };
        assert_eq!(signed.verify(std::slice::from_ref(&secret), std::time::SystemTime::now()), Ok(()));
    }
}
