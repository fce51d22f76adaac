//! Answers of SQS that moto never gives: a server that speaks its protocol and says what it is told to.

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
use protocol::{Answer, entries, say};
use receiver::{Receiver, Reply};
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

/// The bodies that a server really kept: those that it said it had.
type Kept = Arc<Mutex<Vec<String>>>;

/// A server that treats each entry as `judge` says, with its id and body, and keeps those that it accepts.
async fn server(judge: impl Fn(&mut Answer, &str, &str) + Send + Sync + 'static) -> (Receiver, Kept) {
    let receiver = Receiver::start().await;
    let kept = Kept::default();
    let keeping = Arc::clone(&kept);
    receiver.answers(move |arrived| {
        let mut answer = Answer::default();
        for entry in entries(arrived) {
            let (id, body) = (entry["Id"].as_str().unwrap(), entry["MessageBody"].as_str().unwrap());
            let before = answer.successful.len();
            judge(&mut answer, id, body);
            if answer.successful.len() > before {
                keeping.lock().unwrap().push(body.to_owned());
            }
        }
        answer.reply()
    });
    (receiver, kept)
}

fn transport(receiver: &Receiver) -> SqsTransport {
    SqsTransport::new(options(&receiver.url(""))).unwrap()
}

fn kinds(answers: &[Result<postrider_core::Receipt, PublishError>]) -> Vec<&'static str> {
    answers.iter().map(|answer| answer.as_ref().map_or_else(PublishError::kind, |_| "accepted")).collect()
}

fn keyed(number: usize, key: &str) -> Outgoing {
    let message = Message::builder("orders").key(key).json(&number).build().unwrap();
    let now = SystemTime::now();
    Outgoing::write(&message, MessageId::at(now), now, "/shop", FIFO.to_owned(), Format::Binary).unwrap()
}

fn refuse_odd(answer: &mut Answer, id: &str, body: &str) {
    match body.parse::<u32>().unwrap() % 2 {
        0 => answer.accept(id),
        _ => answer.refuse(id, "InternalError", false),
    }
}

/// The usual publisher: the request went well, so all of its messages did.
async fn publish_naively(receiver: &Receiver, batch: &[Outgoing]) -> Vec<bool> {
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
async fn a_publisher_that_trusts_the_status_loses_messages_and_ours_does_not() {
    let (receiver, kept) = server(refuse_odd).await;
    let batch = orders(10, QUEUE);
    assert!(publish_naively(&receiver, &batch).await.into_iter().all(|is_settled| is_settled));
    assert_eq!(std::mem::take(&mut *kept.lock().unwrap()).len(), 5, "the naive one settled ten");

    let answers = publish(&transport(&receiver), &batch).await;
    for (number, answer) in answers.iter().enumerate() {
        match number % 2 {
            0 => assert!(answer.is_ok(), "{number}: {answer:?}"),
            _ => assert!(matches!(answer, Err(PublishError::Retry { .. })), "{number}: {answer:?}"),
        }
    }
    assert_eq!(kept.lock().unwrap().len(), 5, "and ours five");
}

/// The same where the server says nothing at all about some of them.
#[tokio::test]
async fn whoever_is_in_neither_list_was_not_accepted() {
    let (receiver, kept) = server(|answer, id, body| {
        if body.parse::<u32>().unwrap().is_multiple_of(2) {
            answer.accept(id);
        }
    })
    .await;
    let batch = orders(10, QUEUE);
    assert!(publish_naively(&receiver, &batch).await.into_iter().all(|is_settled| is_settled));
    assert_eq!(std::mem::take(&mut *kept.lock().unwrap()).len(), 5, "the naive one settled ten");

    let answers = publish(&transport(&receiver), &batch).await;
    assert_eq!(kinds(&answers), ["accepted", "PublishUnknown"].repeat(5));
}

#[tokio::test]
async fn an_id_counts_for_nobody_else() {
    let (receiver, _) = server(|answer, id, body| match body {
        "0" => answer.accept(id),
        // Named twice, named in both lists, named by what it is not.
        "1" => {
            answer.accept(id);
            answer.accept(id);
        }
        "2" => {
            answer.accept(id);
            answer.refuse(id, "InternalError", false);
        }
        _ => answer.accept("17"),
    })
    .await;
    let answers = publish(&transport(&receiver), &orders(4, QUEUE)).await;
    assert_eq!(kinds(&answers), ["accepted", "PublishUnknown", "PublishUnknown", "PublishUnknown"]);
}

#[tokio::test]
async fn faults_of_the_sender_are_for_good_and_those_of_the_service_are_not() {
    let (receiver, _) = server(|answer, id, body| match body {
        "0" => answer.refuse(id, "InvalidMessageContents", true),
        "1" => answer.refuse(id, "InvalidParameterValue", true),
        "2" => answer.refuse(id, "InvalidParameterValue", false),
        "3" => answer.refuse(id, "AccessDenied", true),
        "4" => answer.refuse(id, "SomethingNew", true),
        _ => answer.refuse(id, "RequestThrottled", false),
    })
    .await;
    let answers = publish(&transport(&receiver), &orders(6, QUEUE)).await;
    let (good, now) = ("PublishRejected", "PublishRefused");
    assert_eq!(kinds(&answers), [good, good, now, now, now, now]);
    assert!(matches!(answers[5], Err(PublishError::Retry { after: Some(_), .. })), "{answers:?}");
}

/// One message of each group in a request, and none before the one in front of it was accepted.
#[tokio::test]
async fn order_holds_through_partial_failure() {
    let failed = Arc::new(Mutex::new(BTreeSet::new()));
    let failing = Arc::clone(&failed);
    // Every fourth message fails the first time.
    let (receiver, kept) = server(move |answer, id, body| {
        let number: usize = body.parse().unwrap();
        match number % 4 != 1 || !failing.lock().unwrap().insert(number) {
            true => answer.accept(id),
            false => answer.refuse(id, "InternalError", false),
        }
    })
    .await;
    let sqs = transport(&receiver);
    let mut left: Vec<_> = (0..30).map(|number| keyed(number, ["a", "b", "c"][number % 3])).collect();
    soon(async {
        while !left.is_empty() {
            let answers = sqs.publish(&left).await;
            let mut answers = answers.into_iter();
            left.retain(|_| answers.next().unwrap().is_err());
        }
    })
    .await;
    for arrived in receiver.seen().arrived {
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

/// An outage costs nobody an attempt, whatever its place in its group.
#[tokio::test]
async fn what_is_behind_one_that_found_nobody_is_down_as_well() {
    let (receiver, _) = server(|answer, id, _| answer.accept(id)).await;
    let sqs = transport(&receiver);
    let batch: Vec<_> = (0..6).map(|number| keyed(number, ["a", "b"][number % 2])).collect();
    receiver.stop().await;
    assert_eq!(kinds(&publish(&sqs, &batch).await), ["DestinationDown"; 6]);
    receiver.start_again().await;
    assert_eq!(kinds(&publish(&sqs, &batch).await), ["accepted"; 6]);
}

fn refusal(code: &str) -> Value {
    json!({"__type": format!("com.amazonaws.sqs#{code}"), "message": "said so"})
}

#[tokio::test]
async fn a_refused_request_is_told_by_its_code() {
    let receiver = Receiver::start().await;
    let sqs = transport(&receiver);
    for (status, code, kind) in [
        (400, "QueueDoesNotExist", "PublishRefused"),
        (403, "AccessDenied", "PublishRefused"),
        (403, "RequestThrottled", "PublishRefused"),
        (503, "ServiceUnavailable", "PublishRefused"),
        (403, "InvalidClientTokenId", "DestinationDown"),
        (403, "SignatureDoesNotMatch", "DestinationDown"),
        (400, "InvalidMessageContents", "PublishRejected"),
        (500, "InternalError", "PublishUnknown"),
        (502, "", "PublishUnknown"),
        (400, "SomethingNew", "PublishRefused"),
    ] {
        receiver.answers(move |_| say(status, &refusal(code)));
        assert_eq!(kinds(&publish(&sqs, &orders(2, QUEUE)).await), [kind; 2], "{status} {code}");
    }
}

#[tokio::test]
async fn a_service_that_is_busy_says_when_to_come_again() {
    let receiver = Receiver::start().await;
    receiver.answers(|_| Reply::With(503, "retry-after", "7".to_owned()));
    let answer = publish(&transport(&receiver), &orders(1, QUEUE)).await.remove(0);
    let Err(PublishError::Retry { after, .. }) = answer else { panic!("{answer:?}") };
    assert_eq!(after, Some(Duration::from_secs(7)));
}

/// 200, and then nothing that could be read.
#[tokio::test]
async fn an_answer_that_cannot_be_read_is_unknown() {
    let receiver = Receiver::start().await;
    let sqs = transport(&receiver);
    for reply in [
        Reply::Status(200),
        Reply::Saying(200, "no JSON"),
        Reply::Saying(200, "{}"),
        Reply::Saying(200, r#"{"Successful":[{"Id":"0""#),
        Reply::CutBody(200),
        Reply::Cut,
    ] {
        let told = format!("{reply:?}");
        receiver.answers(move |_| reply.clone());
        let kinds = kinds(&publish(&sqs, &orders(2, QUEUE)).await);
        assert_eq!(kinds, ["PublishUnknown"; 2], "{told}");
    }
}

/// Once, whatever the answer: retries are the relay's.
#[tokio::test]
async fn nothing_is_sent_twice() {
    let receiver = Receiver::start().await;
    let sqs = transport(&receiver);
    for reply in [Reply::Status(500), Reply::Status(503), Reply::Cut, Reply::CutBody(200)] {
        let before = receiver.seen().arrived.len();
        receiver.answers(move |_| reply.clone());
        publish(&sqs, &orders(3, QUEUE)).await;
        assert_eq!(receiver.seen().arrived.len(), before + 1);
    }
}

/// The requests of a batch go side by side.
#[tokio::test]
async fn requests_do_not_wait_for_each_other() {
    let receiver = Receiver::start().await;
    let all = Arc::new(tokio::sync::Barrier::new(10));
    receiver.answers(move |_| Reply::Together(Arc::clone(&all)));
    // They are answered when all ten are there, with nothing in it.
    assert_eq!(kinds(&publish(&transport(&receiver), &orders(100, QUEUE)).await), ["PublishUnknown"; 100]);
}

#[tokio::test]
async fn what_may_not_be_seen_is_told_by_the_check() {
    let receiver = Receiver::start().await;
    receiver.answers(|_| say(403, &refusal("AccessDenied")));
    let findings = soon(transport(&receiver).check(&[QUEUE])).await.unwrap();
    assert_eq!(server::codes(&findings), [(Severity::Note, "not_visible")]);

    let refused =
        "<ErrorResponse><Error><Type>Sender</Type><Code>AuthorizationError</Code></Error></ErrorResponse>";
    receiver.answers(|_| Reply::Saying(403, refused));
    let sns = SnsTransport::new(options(&receiver.url(""))).unwrap();
    let findings = soon(sns.check(&["orders"])).await.unwrap();
    assert_eq!(server::codes(&findings), [(Severity::Note, "not_visible")]);
}

/// moto confirms everybody at once.
#[tokio::test]
async fn a_subscription_that_waits_to_be_confirmed_is_told() {
    let receiver = Receiver::start().await;
    receiver.answers(|arrived| {
        let asked = String::from_utf8_lossy(&arrived.body);
        match asked.contains("Action=ListSubscriptionsByTopic") {
            true => Reply::Saying(200, WAITING),
            false => Reply::Saying(200, ATTRIBUTES),
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
