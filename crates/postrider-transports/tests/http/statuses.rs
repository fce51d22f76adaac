//! What receivers answer, and what follows.

use crate::{receiver::*, *};
use postrider_transports::http::HttpOptions;

/// A receiver that answers with the status in the path.
async fn receiver() -> Receiver {
    let receiver = Receiver::start().await;
    receiver.answers(|arrived| Reply::Status(arrived.path[1..].parse().unwrap()));
    receiver
}

#[tokio::test]
async fn only_2xx_is_accepted() {
    let receiver = receiver().await;
    let transport = transport(open().with_rejected(422).unwrap());
    let statuses = [
        200, 201, 202, 204, 299, 300, 301, 302, 303, 304, 307, 308, 400, 401, 402, 403, 404, 405, 406, 408,
        409, 411, 413, 414, 415, 422, 425, 429, 431, 451, 500, 501, 502, 503, 504, 520, 599,
    ];
    let batch: Vec<_> =
        statuses.iter().map(|status| order(17, &receiver.url(&format!("/{status}")))).collect();
    for (status, answer) in statuses.iter().zip(publish(&transport, &batch).await) {
        let is_right = match status {
            200..=299 => answer.is_ok(),
            413 | 414 | 415 | 422 | 431 => is_reject(&answer),
            _ => is_retry(&answer),
        };
        assert!(is_right, "{status}: {answer:?}");
    }
    assert_eq!(receiver.seen().arrived.len(), statuses.len(), "each was sent once");
}

#[tokio::test]
async fn a_refusal_says_what_the_receiver_said_and_no_secret() {
    let receiver = Receiver::start().await;
    receiver.answers(|_| Reply::Saying(400, "total is missing\u{7}\n"));
    let url = receiver.url("/in/t0ken?key=hunter2").replace("://", "://ann:hunter2@");
    let error = publish_one(&transport(open()), &url).await.unwrap_err().to_string();
    assert_eq!(
        error,
        format!(
            "refused for now: http://{} answered 400 Bad Request: total is missing\\u{{7}}",
            receiver.address
        )
    );
    assert_eq!(receiver.seen().arrived[0].header("authorization"), "Basic YW5uOmh1bnRlcjI=");
}

#[tokio::test]
async fn a_receiver_may_say_when() {
    let receiver = Receiver::start().await;
    receiver.answers(|_| Reply::With(429, "retry-after", "7".to_owned()));
    let transport = transport(open().with_longest_wait(Duration::from_secs(60)));
    let after = |answer| match answer {
        Err(PublishError::Retry { after, .. }) => after.unwrap(),
        other => panic!("{other:?}"),
    };
    assert_eq!(after(publish_one(&transport, &receiver.url("/")).await), Duration::from_secs(7));
    receiver.answers(|_| Reply::With(503, "retry-after", "3600".to_owned()));
    assert_eq!(after(publish_one(&transport, &receiver.url("/")).await), Duration::from_secs(60), "capped");
    receiver.answers(|_| Reply::With(503, "retry-after", "Fri, 31 Dec 2100 23:59:59 GMT".to_owned()));
    assert_eq!(
        after(publish_one(&transport, &receiver.url("/")).await),
        Duration::from_secs(60),
        "a date, capped"
    );
}

#[tokio::test]
async fn a_url_that_is_gone_is_sent_nothing_more() {
    let receiver = Receiver::start().await;
    receiver.answers(|arrived| Reply::Status(if arrived.path == "/left" { 410 } else { 200 }));
    let (left, here) = (receiver.url("/left"), receiver.url("/here"));
    let transport = transport(open());
    assert!(transport.gone().is_empty());
    assert!(is_reject(&publish_one(&transport, &left).await));
    receiver.answers(|_| Reply::Status(200));
    let answers = publish(&transport, &[order(1, &left), order(2, &here)]).await;
    assert!(is_reject(&answers[0]) && answers[1].is_ok(), "{answers:?}");
    assert_eq!(receiver.seen().arrived.len(), 2, "it was asked once");
    assert_eq!(transport.gone(), [left.as_str()]);
    let anew = crate::transport(open());
    assert!(publish_one(&anew, &left).await.is_ok(), "a new transport asks again");
}

#[tokio::test]
async fn an_answer_that_is_missing_or_cut_off_is_unknown() {
    let receiver = Receiver::start().await;
    let transport = transport(open());
    for (reply, told) in [(Reply::Cut, "did not answer"), (Reply::CutBody(200), "was cut off")] {
        receiver.answers(move |_| reply.clone());
        let answer = publish_one(&transport, &receiver.url("/")).await;
        assert!(is_unknown(&answer), "{answer:?}");
        assert!(answer.unwrap_err().to_string().contains(told), "{told}");
    }
    receiver.answers(|_| Reply::CutBody(500));
    assert!(is_retry(&publish_one(&transport, &receiver.url("/")).await), "the refusal is whole");
    receiver.answers(|_| Reply::Status(200));
    assert!(publish_one(&transport, &receiver.url("/")).await.is_ok(), "and then it works");
}

#[tokio::test]
async fn silence_is_unknown_and_bounded() {
    let receiver = Receiver::start().await;
    receiver.answers(|_| Reply::Silence);
    let transport = transport(open().with_timeout(Duration::from_millis(300)));
    let answer = publish_one(&transport, &receiver.url("/")).await;
    assert!(is_unknown(&answer), "{answer:?}");
}

/// A receiver that never ends its answer costs neither time nor memory.
#[tokio::test]
async fn an_endless_answer_is_read_only_at_its_beginning() {
    let receiver = Receiver::start().await;
    receiver.answers(|arrived| Reply::Endless(arrived.path[1..].parse().unwrap()));
    let transport = transport(open().with_timeout(Duration::from_secs(50)));
    assert!(publish_one(&transport, &receiver.url("/200")).await.is_ok());
    let error = publish_one(&transport, &receiver.url("/500")).await.unwrap_err().to_string();
    assert!(error.len() < 400, "{} characters", error.len());
}

#[test]
fn a_success_cannot_be_configured_away() {
    let error = HttpOptions::new().with_rejected(200).unwrap_err().to_string();
    assert_eq!(error, "status: 200 cannot be a refusal; give one from 300 to 599");
}
