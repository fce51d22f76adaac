//! Responses of SQS that moto never gives, from a scripted server with the same protocol.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/sqs_protocol.rs"]
mod protocol;
#[path = "http/receiver.rs"]
#[allow(dead_code, reason = "the tests of webhooks need more of it")]
mod receiver;
#[path = "support/sqs.rs"]
mod server;
mod support;

use aws_sdk_sqs::types::SendMessageBatchRequestEntry;
use postrider_core::{Format, Message, MessageId, Outgoing, PublishError, Severity, Transport};
use postrider_transports::{sns::SnsTransport, sqs::SqsTransport};
use protocol::{BatchResponse, entries, respond};
use receiver::{Receiver, ScriptedResponse};
use serde_json::{Value, json};
use server::options;
use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
    time::{Duration, SystemTime},
};
use support::{orders, publish, soon};

const QUEUE: &str = "http://sqs.example/1/orders";
const FIFO: &str = "http://sqs.example/1/orders.fifo";

/// The bodies that a server really kept: those that it accepted.
type Kept = Arc<Mutex<Vec<String>>>;

/// A server that handles each entry by `script`, with its id and body, and keeps those that it accepts.
async fn server(script: impl Fn(&mut BatchResponse, &str, &str) + Send + Sync + 'static) -> (Receiver, Kept) {
    let receiver = Receiver::start().await;
    let kept = Kept::default();
    let keeping = Arc::clone(&kept);
    receiver.respond_with(move |arrived| {
        let mut result = BatchResponse::default();
        for entry in entries(arrived) {
            let (id, body) = (entry["Id"].as_str().unwrap(), entry["MessageBody"].as_str().unwrap());
            let before = result.successful.len();
            script(&mut result, id, body);
            if result.successful.len() > before {
                keeping.lock().unwrap().push(body.to_owned());
            }
        }
        result.reply()
    });
    (receiver, kept)
}

fn transport(receiver: &Receiver) -> SqsTransport {
    SqsTransport::new(options(&receiver.url(""))).unwrap()
}

fn kinds(results: &[Result<postrider_core::Receipt, PublishError>]) -> Vec<&'static str> {
    results.iter().map(|result| result.as_ref().map_or_else(PublishError::kind, |_| "accepted")).collect()
}

fn keyed(number: usize, key: &str) -> Outgoing {
    let message = Message::builder("orders").key(key).json(&number).build().unwrap();
    let now = SystemTime::now();
    Outgoing::write(&message, MessageId::at(now), now, "/shop", FIFO.to_owned(), Format::Binary).unwrap()
}

fn refuse_odd(result: &mut BatchResponse, id: &str, body: &str) {
    match body.parse::<u32>().unwrap() % 2 {
        0 => result.accept(id),
        _ => result.refuse(id, "InternalError", false),
    }
}

/// The usual publisher: treats a successful request as success of all its messages.
async fn naive_publish(receiver: &Receiver, batch: &[Outgoing]) -> Vec<bool> {
    let client = aws_sdk_sqs::Client::new(&server::config(&receiver.url("")).await);
    let entry = |(number, outgoing): (usize, &Outgoing)| {
        let body = String::from_utf8(outgoing.body.to_vec()).unwrap();
        SendMessageBatchRequestEntry::builder().id(number.to_string()).message_body(body).build().unwrap()
    };
    let entries = batch.iter().enumerate().map(entry).collect();
    let sent = soon(client.send_message_batch().queue_url(QUEUE).set_entries(Some(entries)).send()).await;
    vec![sent.is_ok(); batch.len()]
}

#[tokio::test]
async fn control_publisher_that_trusts_status_loses_messages_and_ours_does_not() {
    let (receiver, kept) = server(refuse_odd).await;
    let batch = orders(10, QUEUE);
    assert!(naive_publish(&receiver, &batch).await.into_iter().all(|is_settled| is_settled));
    assert_eq!(std::mem::take(&mut *kept.lock().unwrap()).len(), 5, "the naive publisher settled ten");

    let results = publish(&transport(&receiver), &batch).await;
    for (number, result) in results.iter().enumerate() {
        match number % 2 {
            0 => assert!(result.is_ok(), "{number}: {result:?}"),
            _ => assert!(matches!(result, Err(PublishError::Retry { .. })), "{number}: {result:?}"),
        }
    }
    assert_eq!(kept.lock().unwrap().len(), 5, "our transport settled five");
}

/// The same if the server does not list some of them.
#[tokio::test]
async fn message_in_neither_list_is_unknown() {
    let (receiver, kept) = server(|result, id, body| {
        if body.parse::<u32>().unwrap().is_multiple_of(2) {
            result.accept(id);
        }
    })
    .await;
    let batch = orders(10, QUEUE);
    assert!(naive_publish(&receiver, &batch).await.into_iter().all(|is_settled| is_settled));
    assert_eq!(std::mem::take(&mut *kept.lock().unwrap()).len(), 5, "the naive publisher settled ten");

    let results = publish(&transport(&receiver), &batch).await;
    assert_eq!(kinds(&results), ["accepted", "PublishUnknown"].repeat(5));
}

#[tokio::test]
async fn result_counts_for_its_own_id_only() {
    let (receiver, _) = server(|result, id, body| match body {
        "0" => result.accept(id),
        // Listed twice, listed in both lists, listed under another id.
        "1" => {
            result.accept(id);
            result.accept(id);
        }
        "2" => {
            result.accept(id);
            result.refuse(id, "InternalError", false);
        }
        _ => result.accept("17"),
    })
    .await;
    let results = publish(&transport(&receiver), &orders(4, QUEUE)).await;
    assert_eq!(kinds(&results), ["accepted", "PublishUnknown", "PublishUnknown", "PublishUnknown"]);
}

#[tokio::test]
async fn sender_faults_are_rejected_and_service_faults_are_retried() {
    let (receiver, _) = server(|result, id, body| match body {
        "0" => result.refuse(id, "InvalidMessageContents", true),
        "1" => result.refuse(id, "InvalidParameterValue", true),
        "2" => result.refuse(id, "InvalidParameterValue", false),
        "3" => result.refuse(id, "AccessDenied", true),
        "4" => result.refuse(id, "SomethingNew", true),
        _ => result.refuse(id, "RequestThrottled", false),
    })
    .await;
    let results = publish(&transport(&receiver), &orders(6, QUEUE)).await;
    let (good, now) = ("PublishRejected", "PublishRefused");
    assert_eq!(kinds(&results), [good, good, now, now, now, now]);
    assert!(matches!(results[5], Err(PublishError::Retry { after: Some(_), .. })), "{results:?}");
}

/// One message of each group in a request, and none before the message in front of it was accepted.
#[tokio::test]
async fn fifo_order_holds_through_partial_failure() {
    let failed = Arc::new(Mutex::new(BTreeSet::new()));
    let failing = Arc::clone(&failed);
    // Every fourth message fails the first time.
    let (receiver, kept) = server(move |result, id, body| {
        let number: usize = body.parse().unwrap();
        match number % 4 != 1 || !failing.lock().unwrap().insert(number) {
            true => result.accept(id),
            false => result.refuse(id, "InternalError", false),
        }
    })
    .await;
    let sqs = transport(&receiver);
    let mut left: Vec<_> = (0..30).map(|number| keyed(number, ["a", "b", "c"][number % 3])).collect();
    soon(async {
        while !left.is_empty() {
            let results = sqs.publish(&left).await;
            let mut results = results.into_iter();
            left.retain(|_| results.next().unwrap().is_err());
        }
    })
    .await;
    for arrived in receiver.log().arrived {
        let entries = entries(&arrived);
        let groups: BTreeSet<_> = entries.iter().map(|entry| entry["MessageGroupId"].to_string()).collect();
        assert_eq!(groups.len(), entries.len(), "two of a group in one request");
    }
    let kept: Vec<usize> = kept.lock().unwrap().iter().map(|body| body.parse().unwrap()).collect();
    for group in 0..3 {
        let of_group: Vec<_> = kept.iter().copied().filter(|number| number % 3 == group).collect();
        let in_order: Vec<_> = (0..30).filter(|number| number % 3 == group).collect();
        assert_eq!(of_group, in_order);
    }
}

/// An outage costs no message an attempt, whatever its position in its group.
#[tokio::test]
async fn messages_behind_an_unavailable_one_are_unavailable() {
    let (receiver, _) = server(|result, id, _| result.accept(id)).await;
    let sqs = transport(&receiver);
    let batch: Vec<_> = (0..6).map(|number| keyed(number, ["a", "b"][number % 2])).collect();
    receiver.stop().await;
    assert_eq!(kinds(&publish(&sqs, &batch).await), ["DestinationDown"; 6]);
    receiver.restart().await;
    assert_eq!(kinds(&publish(&sqs, &batch).await), ["accepted"; 6]);
}

fn refusal(code: &str) -> Value {
    json!({"__type": format!("com.amazonaws.sqs#{code}"), "message": "said so"})
}

#[tokio::test]
async fn refused_request_is_classified_by_code() {
    let receiver = Receiver::start().await;
    let sqs = transport(&receiver);
    for (status, code, kind) in [
        (400, "QueueDoesNotExist", "AddressUnavailable"),
        (403, "AccessDenied", "AddressUnavailable"),
        (403, "RequestThrottled", "PublishRefused"),
        (503, "ServiceUnavailable", "PublishRefused"),
        (403, "InvalidClientTokenId", "DestinationDown"),
        (403, "SignatureDoesNotMatch", "DestinationDown"),
        (400, "InvalidMessageContents", "PublishRejected"),
        (500, "InternalError", "PublishUnknown"),
        (502, "", "PublishUnknown"),
        (400, "SomethingNew", "PublishRefused"),
    ] {
        receiver.respond_with(move |_| respond(status, &refusal(code)));
        assert_eq!(kinds(&publish(&sqs, &orders(2, QUEUE)).await), [kind; 2], "{status} {code}");
    }
}

#[tokio::test]
async fn throttled_request_obeys_retry_after() {
    let receiver = Receiver::start().await;
    receiver.respond_with(|_| ScriptedResponse::WithHeader(503, "retry-after", "7".to_owned()));
    let result = publish(&transport(&receiver), &orders(1, QUEUE)).await.remove(0);
    let Err(PublishError::Retry { after, .. }) = result else { panic!("{result:?}") };
    assert_eq!(after, Some(Duration::from_secs(7)));
}

/// Status 200 with a body that cannot be read.
#[tokio::test]
async fn unreadable_response_is_unknown() {
    let receiver = Receiver::start().await;
    let sqs = transport(&receiver);
    for reply in [
        ScriptedResponse::Status(200),
        ScriptedResponse::WithBody(200, "no JSON"),
        ScriptedResponse::WithBody(200, "{}"),
        ScriptedResponse::WithBody(200, r#"{"Successful":[{"Id":"0""#),
        ScriptedResponse::TruncatedBody(200),
        ScriptedResponse::Disconnect,
    ] {
        let told = format!("{reply:?}");
        receiver.respond_with(move |_| reply.clone());
        let kinds = kinds(&publish(&sqs, &orders(2, QUEUE)).await);
        assert_eq!(kinds, ["PublishUnknown"; 2], "{told}");
    }
}

/// One request, whatever the response: the relay retries.
#[tokio::test]
async fn client_does_not_retry_requests() {
    let receiver = Receiver::start().await;
    let sqs = transport(&receiver);
    for reply in [
        ScriptedResponse::Status(500),
        ScriptedResponse::Status(503),
        ScriptedResponse::Disconnect,
        ScriptedResponse::TruncatedBody(200),
    ] {
        let before = receiver.log().arrived.len();
        receiver.respond_with(move |_| reply.clone());
        publish(&sqs, &orders(3, QUEUE)).await;
        assert_eq!(receiver.log().arrived.len(), before + 1);
    }
}

/// The requests of a batch run concurrently.
#[tokio::test]
async fn requests_of_a_batch_run_concurrently() {
    let receiver = Receiver::start().await;
    let all = Arc::new(tokio::sync::Barrier::new(10));
    receiver.respond_with(move |_| ScriptedResponse::AfterBarrier(Arc::clone(&all)));
    // All ten get an empty response once all of them have arrived.
    assert_eq!(kinds(&publish(&transport(&receiver), &orders(100, QUEUE)).await), ["PublishUnknown"; 100]);
}

#[tokio::test]
async fn check_reports_missing_permission() {
    let receiver = Receiver::start().await;
    receiver.respond_with(|_| respond(403, &refusal("AccessDenied")));
    let findings = soon(transport(&receiver).check(&[QUEUE])).await.unwrap();
    assert_eq!(server::codes(&findings), [(Severity::Note, "not_visible")]);

    let refused =
        "<ErrorResponse><Error><Type>Sender</Type><Code>AuthorizationError</Code></Error></ErrorResponse>";
    receiver.respond_with(|_| ScriptedResponse::WithBody(403, refused));
    let sns = SnsTransport::new(options(&receiver.url(""))).unwrap();
    let findings = soon(sns.check(&["orders"])).await.unwrap();
    assert_eq!(server::codes(&findings), [(Severity::Note, "not_visible")]);
}

/// moto confirms every subscription at once.
#[tokio::test]
async fn check_reports_unconfirmed_subscription() {
    let receiver = Receiver::start().await;
    receiver.respond_with(|arrived| {
        let asked = String::from_utf8_lossy(&arrived.body);
        match asked.contains("Action=ListSubscriptionsByTopic") {
            true => ScriptedResponse::WithBody(200, WAITING),
            false => ScriptedResponse::WithBody(200, ATTRIBUTES),
        }
    });
    let sns = SnsTransport::new(options(&receiver.url(""))).unwrap();
    let findings = soon(sns.check(&["arn:aws:sns:eu-central-1:1:orders"])).await.unwrap();
    assert_eq!(server::codes(&findings), [(Severity::Warning, "not_confirmed")]);
}

const ATTRIBUTES: &str = "<GetTopicAttributesResponse><GetTopicAttributesResult><Attributes/>\
    </GetTopicAttributesResult></GetTopicAttributesResponse>";
const WAITING: &str = "<ListSubscriptionsByTopicResponse><ListSubscriptionsByTopicResult><Subscriptions><member>\
    <SubscriptionArn>PendingConfirmation</SubscriptionArn><Protocol>https</Protocol>\
    <Endpoint>https://shop.example</Endpoint></member></Subscriptions></ListSubscriptionsByTopicResult>\
    </ListSubscriptionsByTopicResponse>";
