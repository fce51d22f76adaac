//! The examples do what they say.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "../../../examples/consume_http.rs"]
mod consume_http;
#[path = "../../../examples/cron.rs"]
mod cron;
#[path = "../../../examples/erase_customer.rs"]
mod erase_customer;
#[path = "../../../examples/outbox.rs"]
mod outbox;
#[allow(dead_code, reason = "the tests of the transport need more of it")]
#[path = "../../postrider-transports/tests/http/receiver.rs"]
mod receiver;
#[path = "../../../examples/relay.rs"]
mod relay;
#[path = "../../../examples/relay_http.rs"]
mod relay_http;
#[path = "../../../examples/testing.rs"]
mod testing;
#[path = "../../../examples/timers.rs"]
mod timers;
#[path = "../../../examples/transactional_handler.rs"]
mod transactional_handler;
#[path = "../../../examples/typed_handler.rs"]
mod typed_handler;
#[path = "../../../examples/worker.rs"]
mod worker;

#[tokio::test]
async fn the_outbox_example_tells_the_whole_way_of_a_message() {
    let mut out = Vec::new();
    outbox::run(&mut out).await.unwrap();
    assert_eq!(
        String::from_utf8(out).unwrap(),
        r#"order 1 was rolled back; orders 2, 3 and 4 were committed
claimed {"order":2}: done
claimed {"order":3}: retry
claimed {"order":4}: dead
claimed {"order":3} again, after 1 failure
dead letter {"order":4}: rejected, NoSuchCustomer
"#
    );
}

#[tokio::test]
async fn the_worker_example_retries_gives_up_and_stops_cleanly() {
    let mut out = Vec::new();
    worker::run(&mut out).await.unwrap();
    assert_eq!(
        String::from_utf8(out).unwrap(),
        r#"mail to ann
mail to bob
order 1, attempt 1
order 2, attempt 1
order 2, attempt 2
order 3, attempt 1
order 4, attempt 1 … stop!
stopped cleanly: true
5 delivered, 1 tried again, 1 dead
dead letter {"order":3}: NoSuchCustomer
"#
    );
}

#[tokio::test]
async fn the_relay_example_sends_to_each_destination_on_its_own() {
    let mut out = Vec::new();
    relay::run(&mut out).await.unwrap();
    assert_eq!(
        String::from_utf8(out).unwrap(),
        r#"5 claimed: 3 went on, 1 to be sent again, 1 dead
a minute later: 1 delivered
billing has {"order":2,"total":5000} at orders.order.placed
billing has {"order":3,"total":70} at orders.order.placed
audit has {"order":2,"total":5000} at large-orders
billing never gets {"order":1,"total":20}: PublishRejected
"#
    );
}

#[tokio::test]
async fn the_typed_handler_example_shows_every_way_to_end() {
    let mut out = Vec::new();
    typed_handler::run(&mut out).await.unwrap();
    assert_eq!(
        String::from_utf8(out).unwrap(),
        r#"2 delivered: 42 in the till
2 to be tried again, 1 put off, 3 dead
waits: {"customer":"eve","amount":"much"}: ParseIntError
waits: {"customer":"busy","amount":"2"}: TooManyRequests
waits: {"customer":"new","amount":"3"}: no failure
dead: {"customer":"nobody","amount":"1"}: NoSuchCustomer, rejected
dead: {"amount":5}: UnknownType, rejected
dead: {: CodecError, undecodable
"#
    );
}

#[tokio::test]
async fn the_transactional_handler_example_has_every_effect_once() {
    let folder = tempfile::tempdir().unwrap();
    let mut out = Vec::new();
    transactional_handler::run(folder.path(), &mut out).await.unwrap();
    assert_eq!(
        String::from_utf8(out).unwrap(),
        "3 orders packed, 1 failure\nparcels: [1, 2, 3]\n3 parcels sent\n"
    );
}

#[tokio::test]
async fn the_erase_customer_example_ends_every_call_in_a_known_state() {
    let folder = tempfile::tempdir().unwrap();
    let mut out = Vec::new();
    erase_customer::run(folder.path(), &mut out).await.unwrap();
    assert_eq!(
        String::from_utf8(out).unwrap(),
        r#"customer 17 is gone here, and 3 calls follow
calls to payments: 3, keys: 1
calls to mail: 1, keys: 1
calls to archive: 2, keys: 1
0 pending, 0 in_flight, 0 failed, 0 scheduled, 3 succeeded, 0 abandoned
erased everywhere: customer-17
removed from the queues: 1 waiting, 3 kept; 0 left
ledger, all: completed, erased, erased
ledger, archive: scheduled, succeeded
ledger, mail: succeeded
ledger, payments: succeeded
7 events, and nobody has been at them
"#
    );
}

#[tokio::test]
async fn the_timers_example_puts_one_off_and_cancels_another() {
    let mut out = Vec::new();
    timers::run(&mut out).await.unwrap();
    assert_eq!(
        String::from_utf8(out).unwrap(),
        "minute 3: a click; order 17 is paid, reminder cancelled: true\n\
         minute 4: tea is ready\n\
         minute 8: signed out after a click\n\
         minute 10: pay the rent\n"
    );
}

#[tokio::test]
async fn the_cron_example_stages_each_night_once() {
    let mut out = Vec::new();
    cron::run(&mut out).await.unwrap();
    assert_eq!(
        String::from_utf8(out).unwrap(),
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
async fn the_relay_http_example_settles_by_what_the_receiver_answers() {
    use postrider::transports::http::signature::{Secret, Signed};
    use receiver::{Receiver, Reply};

    let receiver = Receiver::start().await;
    receiver.answers(|arrived| {
        Reply::Status(match &arrived.body[..] {
            b"1" => 204,
            b"2" => 503,
            _ => 413,
        })
    });
    let mut out = Vec::new();
    relay_http::run(&receiver.url("/hooks"), &mut out).await.unwrap();
    assert_eq!(
        String::from_utf8(out).unwrap(),
        "warning: plain_http, use https\n\
         1 accepted, 1 to be sent again, 1 refused for good, 0 wait for the receiver\n"
    );
    let secret = Secret::parse(relay_http::SECRET).unwrap();
    let orders: Vec<_> =
        receiver.seen().arrived.into_iter().filter(|arrived| arrived.method == "POST").collect();
    assert_eq!(orders.len(), 3);
    for order in orders {
        assert_eq!(order.path, "/hooks/acme/orders");
        let signed = Signed {
            id: order.header("webhook-id"),
            timestamp: order.header("webhook-timestamp"),
            signature: order.header("webhook-signature"),
            body: &order.body,
        };
        assert_eq!(signed.verify(std::slice::from_ref(&secret), std::time::SystemTime::now()), Ok(()));
    }
}

#[tokio::test]
async fn the_testing_example_passes_weeks_in_no_time() {
    let mut out = Vec::new();
    testing::run(&mut out).await.unwrap();
    assert_eq!(
        String::from_utf8(out).unwrap(),
        "the sixth attempt: Reject, GivenUp\n\
         PaymentDue { order: 17 } in 14 days\n\
         1 retried, 1 lost, 1 delivered\n\
         dead: NoSuchOrder\n"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_consume_http_example_receives_what_the_relay_http_example_posts() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/hooks", listener.local_addr().unwrap());
    let mut out = Vec::new();
    let receiving =
        consume_http::run(listener, "/hooks/acme/orders", std::time::Duration::from_secs(2), &mut out);
    let mut posted = Vec::new();
    let (received, sent) = tokio::join!(receiving, relay_http::run(&url, &mut posted));
    received.unwrap();
    sent.unwrap();
    let (out, posted) = (String::from_utf8(out).unwrap(), String::from_utf8(posted).unwrap());
    assert!(out.ends_with("3 processed, 0 duplicates, 0 parked, 0 failed\n"), "{out}");
    assert!(
        posted.ends_with("3 accepted, 0 to be sent again, 0 refused for good, 0 wait for the receiver\n"),
        "{posted}"
    );
}
