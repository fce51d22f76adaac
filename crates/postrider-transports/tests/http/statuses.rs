//! The publish results of responses.

use crate::{receiver::*, *};
use postrider_transports::http::HttpOptions;

/// A receiver that responds with the status in the path.
async fn receiver() -> Receiver {
    let receiver = Receiver::start().await;
    receiver.respond_with(|arrived| ScriptedResponse::Status(arrived.path[1..].parse().unwrap()));
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
    for (status, result) in statuses.iter().zip(publish(&transport, &batch).await) {
        let is_right = match status {
            200..=299 => result.is_ok(),
            413 | 414 | 415 | 422 | 431 => is_reject(&result),
            _ => is_retry(&result),
        };
        assert!(is_right, "{status}: {result:?}");
    }
    assert_eq!(receiver.log().arrived.len(), statuses.len(), "each was sent once");
}

#[tokio::test]
async fn refusal_quotes_response_and_no_secret() {
    let receiver = Receiver::start().await;
    receiver.respond_with(|_| ScriptedResponse::WithBody(400, "total is missing\u{7}\n"));
    let url = receiver.url("/in/t0ken?key=hunter2").replace("://", "://ann:hunter2@");
    let error = publish_one(&transport(open()), &url).await.unwrap_err().to_string();
    assert_eq!(
        error,
        format!(
            "rejected temporarily: http://{} responded with 400 Bad Request: total is missing\\u{{7}}",
            receiver.address
        )
    );
    assert_eq!(receiver.log().arrived[0].header("authorization"), "Basic YW5uOmh1bnRlcjI=");
}

#[tokio::test]
async fn retry_after_is_obeyed_up_to_the_limit() {
    let receiver = Receiver::start().await;
    receiver.respond_with(|_| ScriptedResponse::WithHeader(429, "retry-after", "7".to_owned()));
    let transport = transport(open().with_longest_wait(Duration::from_secs(60)));
    let after = |result| match result {
        Err(PublishError::Retry { after, .. }) => after.unwrap(),
        other => panic!("{other:?}"),
    };
    assert_eq!(after(publish_one(&transport, &receiver.url("/")).await), Duration::from_secs(7));
    receiver.respond_with(|_| ScriptedResponse::WithHeader(503, "retry-after", "3600".to_owned()));
    assert_eq!(after(publish_one(&transport, &receiver.url("/")).await), Duration::from_secs(60), "capped");
    receiver.respond_with(|_| {
        ScriptedResponse::WithHeader(503, "retry-after", "Fri, 31 Dec 2100 23:59:59 GMT".to_owned())
    });
    assert_eq!(
        after(publish_one(&transport, &receiver.url("/")).await),
        Duration::from_secs(60),
        "a date, capped"
    );
}

#[tokio::test]
async fn gone_url_gets_no_more_requests() {
    let receiver = Receiver::start().await;
    receiver
        .respond_with(|arrived| ScriptedResponse::Status(if arrived.path == "/left" { 410 } else { 200 }));
    let (left, here) = (receiver.url("/left"), receiver.url("/here"));
    let transport = transport(open());
    assert!(transport.gone().is_empty());
    assert!(is_reject(&publish_one(&transport, &left).await));
    receiver.respond_with(|_| ScriptedResponse::Status(200));
    let results = publish(&transport, &[order(1, &left), order(2, &here)]).await;
    assert!(is_reject(&results[0]) && results[1].is_ok(), "{results:?}");
    assert_eq!(receiver.log().arrived.len(), 2, "it got one request");
    assert_eq!(transport.gone(), [left.as_str()]);
    let anew = crate::transport(open());
    assert!(publish_one(&anew, &left).await.is_ok(), "a new transport sends again");
}

#[tokio::test]
async fn missing_or_truncated_response_is_unknown() {
    let receiver = Receiver::start().await;
    let transport = transport(open());
    for (reply, told) in [
        (ScriptedResponse::Disconnect, "did not respond"),
        (ScriptedResponse::TruncatedBody(200), "was truncated"),
    ] {
        receiver.respond_with(move |_| reply.clone());
        let result = publish_one(&transport, &receiver.url("/")).await;
        assert!(is_unknown(&result), "{result:?}");
        assert!(result.unwrap_err().to_string().contains(told), "{told}");
    }
    receiver.respond_with(|_| ScriptedResponse::TruncatedBody(500));
    assert!(
        is_retry(&publish_one(&transport, &receiver.url("/")).await),
        "the status of a truncated refusal counts"
    );
    receiver.respond_with(|_| ScriptedResponse::Status(200));
    assert!(publish_one(&transport, &receiver.url("/")).await.is_ok(), "and then it works");
}

#[tokio::test]
async fn missing_response_is_unknown_after_timeout() {
    let receiver = Receiver::start().await;
    receiver.respond_with(|_| ScriptedResponse::NoResponse);
    let transport = transport(open().with_client(within(Duration::from_millis(300))));
    let result = publish_one(&transport, &receiver.url("/")).await;
    assert!(is_unknown(&result), "{result:?}");
}

/// A receiver whose response never ends costs neither time nor memory.
#[tokio::test]
async fn endless_response_is_read_up_to_the_limit() {
    let receiver = Receiver::start().await;
    receiver.respond_with(|arrived| ScriptedResponse::Endless(arrived.path[1..].parse().unwrap()));
    let transport = transport(open().with_client(within(Duration::from_secs(50))));
    assert!(publish_one(&transport, &receiver.url("/200")).await.is_ok());
    let error = publish_one(&transport, &receiver.url("/500")).await.unwrap_err().to_string();
    assert!(error.len() < 400, "{} characters", error.len());
}

#[test]
fn success_status_cannot_be_configured() {
    let error = HttpOptions::new().with_rejected(200).unwrap_err().to_string();
    assert_eq!(error, "status: 200 cannot be configured as a rejection; use a status from 300 to 599");
}
