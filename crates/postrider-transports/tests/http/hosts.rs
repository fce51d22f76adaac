//! Several hosts behind one transport.

use crate::{receiver::*, *};
use std::sync::Arc;
use tokio::sync::Barrier;

#[tokio::test]
async fn unreachable_host_delays_only_its_own_messages() {
    let receiver = Receiver::start().await;
    let missing = format!("http://127.0.0.1:{}/", closed_port().await);
    let transport = transport(open());
    let alone = publish_one(&transport, &missing).await;
    assert!(is_retry(&alone), "unreachable host first: {alone:?}");
    let batch = [order(1, &missing), order(2, &receiver.url("/")), order(3, &missing)];
    let results = publish(&transport, &batch).await;
    assert!(is_retry(&results[0]) && results[1].is_ok() && is_retry(&results[2]), "{results:?}");
    let alone = publish_one(&transport, &missing).await;
    assert!(is_retry(&alone), "unreachable host last: {alone:?}");
}

#[tokio::test]
async fn several_unreachable_hosts_delay_only_their_own_messages() {
    let receiver = Receiver::start().await;
    let (one, other) = (closed_port().await, closed_port().await);
    let missing = [one, other].map(|port| order(1, &format!("http://127.0.0.1:{port}/")));
    let batch = [&missing[..], &[order(2, &receiver.url("/"))]].concat();
    let results = publish(&transport(open()), &batch).await;
    assert!(is_retry(&results[0]) && is_retry(&results[1]) && results[2].is_ok(), "{results:?}");
}

#[tokio::test]
async fn batch_with_no_reachable_host_is_unavailable() {
    let (one, other) = (closed_port().await, closed_port().await);
    let transport = transport(open());
    let batch = [one, other].map(|port| order(1, &format!("http://127.0.0.1:{port}/")));
    assert!(publish(&transport, &batch).await.iter().all(is_unavailable));
}

#[tokio::test]
async fn unreachable_base_url_is_unavailable() {
    let receiver = Receiver::start().await;
    let options = HttpOptions::below(receiver.url("/")).unwrap().allow_http().allow_host("127.0.0.1");
    let transport = transport(options);
    assert!(publish_one(&transport, "in").await.is_ok());
    receiver.stop().await;
    // A connection that was open when the receiver stopped may report that first.
    within_timeout(async { while !is_unavailable(&publish_one(&transport, "in").await) {} }).await;
    receiver.restart().await;
    assert!(publish_one(&transport, "in").await.is_ok(), "the receiver is reachable again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrency_limits_requests_per_host() {
    let receiver = Receiver::start().await;
    let together = Arc::new(Barrier::new(3));
    receiver.respond_with(move |_| ScriptedResponse::AfterBarrier(Arc::clone(&together)));
    let transport = transport(open().with_concurrency(3).with_client(within(Duration::from_secs(50))));
    let orders = |count| (0..count).map(|number| order(number, &receiver.url("/"))).collect::<Vec<_>>();
    let (one, other) = (orders(9), orders(9));
    // Two calls share the limit.
    let (one, other) = tokio::join!(publish(&transport, &one), publish(&transport, &other));
    assert!(one.iter().chain(&other).all(Result::is_ok));
    assert_eq!(receiver.log().max_in_flight, 3);
}

#[tokio::test]
async fn message_without_permit_in_time_is_not_sent() {
    let receiver = Receiver::start().await;
    receiver.respond_with(|_| ScriptedResponse::NoResponse);
    let transport = transport(open().with_concurrency(1).with_client(within(Duration::from_millis(500))));
    let batch = [order(1, &receiver.url("/")), order(2, &receiver.url("/"))];
    let results = publish(&transport, &batch).await;
    assert!(results[0].is_err() && is_retry(&results[1]), "{results:?}");
    assert!(receiver.log().arrived.len() <= 1);
}
