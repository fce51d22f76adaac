//! Several hosts behind one transport.

use crate::{receiver::*, *};
use std::sync::Arc;
use tokio::sync::Barrier;

#[tokio::test]
async fn a_host_that_is_missing_stops_nobody_else() {
    let receiver = Receiver::start().await;
    let missing = format!("http://127.0.0.1:{}/", closed_port().await);
    let transport = transport(open());
    let alone = publish_one(&transport, &missing).await;
    assert!(is_retry(&alone), "whether it comes first: {alone:?}");
    let batch = [order(1, &missing), order(2, &receiver.url("/")), order(3, &missing)];
    let answers = publish(&transport, &batch).await;
    assert!(is_retry(&answers[0]) && answers[1].is_ok() && is_retry(&answers[2]), "{answers:?}");
    let alone = publish_one(&transport, &missing).await;
    assert!(is_retry(&alone), "or last: {alone:?}");
}

#[tokio::test]
async fn several_hosts_that_are_missing_stop_nobody_else_either() {
    let receiver = Receiver::start().await;
    let (one, other) = (closed_port().await, closed_port().await);
    let missing = [one, other].map(|port| order(1, &format!("http://127.0.0.1:{port}/")));
    let batch = [&missing[..], &[order(2, &receiver.url("/"))]].concat();
    let answers = publish(&transport(open()), &batch).await;
    assert!(is_retry(&answers[0]) && is_retry(&answers[1]) && answers[2].is_ok(), "{answers:?}");
}

#[tokio::test]
async fn nothing_gets_through_when_no_host_of_several_is_reached() {
    let (one, other) = (closed_port().await, closed_port().await);
    let transport = transport(open());
    let batch = [one, other].map(|port| order(1, &format!("http://127.0.0.1:{port}/")));
    assert!(publish(&transport, &batch).await.iter().all(is_down));
}

#[tokio::test]
async fn the_host_of_a_base_url_is_the_destination() {
    let receiver = Receiver::start().await;
    let options = HttpOptions::below(&receiver.url("/")).unwrap().allow_http().allow_host("127.0.0.1");
    let transport = transport(options);
    assert!(publish_one(&transport, "in").await.is_ok());
    receiver.stop().await;
    // A connection that was open when it ended may tell of it first.
    patiently(async { while !is_down(&publish_one(&transport, "in").await) {} }).await;
    receiver.start_again().await;
    assert!(publish_one(&transport, "in").await.is_ok(), "it is found again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_gets_so_many_requests_at_once_and_no_more() {
    let receiver = Receiver::start().await;
    let together = Arc::new(Barrier::new(3));
    receiver.answers(move |_| Reply::Together(Arc::clone(&together)));
    let transport = transport(open().with_at_once(3).with_timeout(Duration::from_secs(50)));
    let orders = |count| (0..count).map(|number| order(number, &receiver.url("/"))).collect::<Vec<_>>();
    let (one, other) = (orders(9), orders(9));
    // Two calls share the limit.
    let (one, other) = tokio::join!(publish(&transport, &one), publish(&transport, &other));
    assert!(one.iter().chain(&other).all(Result::is_ok));
    assert_eq!(receiver.seen().most_under_way, 3);
}

#[tokio::test]
async fn what_gets_no_turn_in_time_was_not_sent() {
    let receiver = Receiver::start().await;
    receiver.answers(|_| Reply::Silence);
    let transport = transport(open().with_at_once(1).with_timeout(Duration::from_millis(500)));
    let batch = [order(1, &receiver.url("/")), order(2, &receiver.url("/"))];
    let answers = publish(&transport, &batch).await;
    assert!(answers[0].is_err() && is_retry(&answers[1]), "{answers:?}");
    assert!(receiver.seen().arrived.len() <= 1);
}
