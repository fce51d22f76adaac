//! The effect of each ack, one by one, and responses of a server that fails in part.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/sqs_source.rs"]
mod queues;
#[path = "http/receiver.rs"]
#[allow(dead_code, reason = "the tests of webhooks use the rest")]
mod receiver;
#[path = "support/sqs.rs"]
mod server;
mod support;

use aws_sdk_sqs::types::MessageAttributeValue;
use postrider_core::{Ack, ReceivedMessage, Source, SourceError};
use postrider_testkit::{Kind, shared};
use postrider_transports::sqs::{SqsSource, SqsSourceBuilder, SqsTransport};
use queues::builder;
use receiver::{ReceivedRequest, Receiver, ScriptedResponse};
use serde_json::{Value, json};
use server::{Aws, options, unique};
use std::{
    pin::pin,
    sync::{Arc, Mutex},
    task::{Context, Waker},
    time::Duration,
};
use support::{orders, publish, soon};
use tokio::time::timeout;

async fn aws() -> Aws {
    Aws::at(&shared::url(Kind::Sqs)).await
}

async fn receive(source: &SqsSource, count: usize) -> Vec<ReceivedMessage> {
    let mut messages = Vec::new();
    while messages.len() < count {
        messages.extend(soon(source.receive(count - messages.len())).await.unwrap());
    }
    messages
}

async fn ack(source: &SqsSource, messages: &[ReceivedMessage], with: Ack) -> Vec<Result<(), SourceError>> {
    let answers: Vec<_> = messages.iter().map(|message| (message.ack_handle.clone(), with)).collect();
    soon(source.ack(&answers)).await
}

/// A rejected message keeps its attributes, of any type, in the reject queue.
#[tokio::test]
async fn rejected_message_goes_to_reject_queue() {
    let aws = aws().await;
    for ending in ["", ".fifo"] {
        let (name, dead) = (unique("orders") + ending, unique("dead") + ending);
        let (queue, dead_queue) = (aws.queue(&name, &[]).await, aws.queue(&dead, &[]).await);
        let number = MessageAttributeValue::builder().data_type("Number").string_value("17").build().unwrap();
        let request =
            aws.sqs.send_message().queue_url(&queue).message_body("x").message_attributes("count", number);
        let fifo = (!ending.is_empty()).then(|| "A-1".to_owned());
        let request = request.set_message_group_id(fifo.clone()).set_message_deduplication_id(fifo);
        request.send().await.unwrap();
        let source = builder(&shared::url(Kind::Sqs), &name).with_reject_to(&dead).build().unwrap();
        let messages = receive(&source, 1).await;
        assert_eq!(messages[0].incoming.headers, [("count".to_owned(), "17".to_owned())]);
        ack(&source, &messages, Ack::Reject).await.remove(0).unwrap();
        let dead = aws
            .sqs
            .receive_message()
            .queue_url(&dead_queue)
            .message_attribute_names("All")
            .send()
            .await
            .unwrap();
        let dead = dead.messages.unwrap().remove(0);
        assert_eq!(dead.body.as_deref(), Some("x"));
        assert_eq!(dead.message_attributes.unwrap()["count"].data_type, "Number");
        assert!(aws.drain(&queue).await.is_empty(), "{name}");
    }
}

/// A rejected message that cannot be forwarded is not deleted.
#[tokio::test]
async fn rejected_message_that_cannot_be_forwarded_is_redelivered() {
    let (aws, name) = (aws().await, unique("orders"));
    aws.queue(&name, &[]).await;
    let url = shared::url(Kind::Sqs);
    publish(&SqsTransport::new(options(&url)).unwrap(), &orders(1, &name)).await;
    let source = builder(&url, &name).with_reject_to("missing").build().unwrap();
    let messages = receive(&source, 1).await;
    let told = ack(&source, &messages, Ack::Reject).await.remove(0);
    assert!(matches!(told, Err(SourceError::Unavailable { .. })), "{told:?}");
    ack(&source, &messages, Ack::REDELIVER_NOW).await.remove(0).unwrap();
    let again = receive(&source, 1).await;
    assert_eq!(again[0].deliveries, Some(2));
    ack(&source, &again, Ack::Ack).await.remove(0).unwrap();
}

/// An hour or the whole limit: the message stays invisible.
#[tokio::test]
async fn nack_with_long_delay_is_accepted() {
    let (aws, name) = (aws().await, unique("orders"));
    let queue = aws.queue(&name, &[]).await;
    let url = shared::url(Kind::Sqs);
    publish(&SqsTransport::new(options(&url)).unwrap(), &orders(2, &name)).await;
    let source = builder(&url, &name).build().unwrap();
    let messages = receive(&source, 2).await;
    let hour = Ack::Nack { after: Duration::from_secs(3600) };
    ack(&source, &messages[..1], hour).await.remove(0).unwrap();
    let unbounded = Ack::Nack { after: Duration::MAX };
    ack(&source, &messages[1..], unbounded).await.remove(0).unwrap();
    assert!(aws.drain(&queue).await.is_empty());
}

#[tokio::test]
async fn ack_handle_of_another_source_is_stale() {
    let (aws, name) = (aws().await, unique("orders"));
    aws.queue(&name, &[]).await;
    let url = shared::url(Kind::Sqs);
    publish(&SqsTransport::new(options(&url)).unwrap(), &orders(1, &name)).await;
    let (source, other) = (builder(&url, &name).build().unwrap(), builder(&url, &name).build().unwrap());
    let messages = receive(&source, 1).await;
    let told = ack(&other, &messages, Ack::Ack).await.remove(0);
    assert!(matches!(told, Err(SourceError::Stale { .. })), "{told:?}");
    ack(&source, &messages, Ack::Ack).await.remove(0).unwrap();
    for with in [Ack::Ack, Ack::REDELIVER_NOW, Ack::Reject] {
        let told = ack(&source, &messages, with).await.remove(0);
        assert!(matches!(told, Err(SourceError::Stale { .. })), "{with:?}: {told:?}");
    }
    let tickets = [messages[0].ack_handle.clone()];
    assert!(matches!(soon(source.extend(&tickets)).await[0], Err(SourceError::Stale { .. })));
}

/// The request that waits while the source is closed gets the next message, and releases it; otherwise it would be invisible for an hour.
#[tokio::test]
async fn messages_received_after_close_are_released() {
    let (aws, name) = (aws().await, unique("orders"));
    aws.queue(&name, &[]).await;
    let url = shared::url(Kind::Sqs);
    let hour = Duration::from_secs(3600);
    let patient = builder(&url, &name).with_visibility_timeout(hour).with_wait(Duration::from_secs(20));
    let closed = patient.build().unwrap();
    let (received, ()) = tokio::join!(soon(closed.receive(1)), async {
        tokio::task::yield_now().await;
        closed.close().await;
    });
    assert!(matches!(received, Err(SourceError::Unavailable { .. })), "{received:?}");
    publish(&SqsTransport::new(options(&url)).unwrap(), &orders(1, &name)).await;
    let heir = builder(&url, &name).build().unwrap();
    let messages = receive(&heir, 1).await;
    ack(&heir, &messages, Ack::Ack).await.remove(0).unwrap();
}

/// A server that responds with 200 to every request, and with a scripted result for each entry.
struct ScriptedServer {
    receiver: Receiver,
    asked: Arc<Mutex<Vec<(String, Value)>>>,
}

/// The scripted result of an entry.
enum EntryResult {
    Successful,
    /// A code, and whether it is the sender's fault.
    Failed(&'static str, bool),
    NotMentioned,
}

/// Delivers these messages, and responds to each receipt handle by script.
async fn scripted(messages: Vec<Value>, script: fn(&str) -> EntryResult) -> ScriptedServer {
    let (receiver, asked) = (Receiver::start().await, Arc::<Mutex<Vec<(String, Value)>>>::default());
    let (left, seen) = (Mutex::new(messages), Arc::clone(&asked));
    receiver.respond_with(move |arrived: &ReceivedRequest| {
        let action = arrived.header("x-amz-target").trim_start_matches("AmazonSQS.").to_owned();
        let request: Value = serde_json::from_slice(&arrived.body).unwrap();
        seen.lock().unwrap().push((action.clone(), request.clone()));
        let respond = |body: Value| ScriptedResponse::WithBody(200, body.to_string().leak());
        if action == "ReceiveMessage" {
            let mut left = left.lock().unwrap();
            if left.is_empty() {
                return ScriptedResponse::NoResponse;
            }
            let most =
                usize::try_from(request["MaxNumberOfMessages"].as_u64().unwrap()).unwrap().min(left.len());
            return respond(json!({"Messages": left.drain(..most).collect::<Vec<_>>()}));
        }
        let (mut successful, mut failed) = (Vec::new(), Vec::new());
        for entry in request["Entries"].as_array().unwrap() {
            match script(entry["ReceiptHandle"].as_str().unwrap()) {
                EntryResult::Successful => successful.push(json!({"Id": entry["Id"]})),
                EntryResult::Failed(code, fault) => {
                    failed.push(
                        json!({"Id": entry["Id"], "Code": code, "SenderFault": fault, "Message": "said so"}),
                    );
                }
                EntryResult::NotMentioned => {}
            }
        }
        respond(json!({"Successful": successful, "Failed": failed}))
    });
    ScriptedServer { receiver, asked }
}

impl ScriptedServer {
    fn source(&self, ending: &str) -> SqsSource {
        self.builder(ending).build().unwrap()
    }

    fn builder(&self, ending: &str) -> SqsSourceBuilder {
        let url = format!("http://{}", self.receiver.address);
        let queue = format!("{url}/1/orders{ending}");
        SqsSource::builder(options(&url), queue).with_visibility_timeout(Duration::from_secs(60))
    }

    /// The receipt handles in the requests of an action, and their visibility timeouts.
    fn requested(&self, action: &str) -> Vec<(String, Option<i64>)> {
        let asked = self.asked.lock().unwrap();
        let entries = asked.iter().filter(|(name, _)| name == action);
        let entries = entries.flat_map(|(_, request)| request["Entries"].as_array().unwrap().clone());
        entries
            .map(|entry| {
                (entry["ReceiptHandle"].as_str().unwrap().to_owned(), entry["VisibilityTimeout"].as_i64())
            })
            .collect()
    }
}

fn message(number: usize, group: Option<&str>) -> Value {
    let mut message = json!({
        "MessageId": format!("m-{number}"),
        "ReceiptHandle": format!("h-{number}"),
        "Body": number.to_string(),
        "Attributes": {"ApproximateReceiveCount": "1"},
    });
    if let Some(group) = group {
        message["Attributes"]["MessageGroupId"] = group.into();
    }
    message
}

/// A response with status 200 may hide failed entries, and unlisted ones.
#[tokio::test]
async fn ack_result_is_that_of_its_own_entry() {
    let script = |handle: &str| match handle {
        "h-1" => EntryResult::Failed("ReceiptHandleIsInvalid", true),
        "h-2" => EntryResult::Failed("InternalError", false),
        "h-3" => EntryResult::NotMentioned,
        _ => EntryResult::Successful,
    };
    for with in [Ack::Ack, Ack::REDELIVER_NOW, Ack::Reject] {
        let scripted = scripted((0..12).map(|number| message(number, None)).collect(), script).await;
        let source = scripted.source("");
        let messages = receive(&source, 12).await;
        let told = ack(&source, &messages, with).await;
        for (number, told) in told.iter().enumerate() {
            match number {
                1 => assert!(matches!(told, Err(SourceError::Stale { .. })), "{with:?}: {told:?}"),
                2 | 3 => assert!(matches!(told, Err(SourceError::Unavailable { .. })), "{with:?}: {told:?}"),
                _ => assert!(told.is_ok(), "{with:?} {number}: {told:?}"),
            }
        }
        // An ack that failed can be repeated; an ack that succeeded or is stale cannot.
        let again = ack(&source, &messages, with).await;
        let is_down = |told: &Result<(), SourceError>| matches!(told, Err(SourceError::Unavailable { .. }));
        assert_eq!(again.iter().filter(|told| is_down(told)).count(), 2, "{again:?}");
        assert!(again.iter().all(Result::is_err));
    }
}

/// The group's next messages, prefetched and not received by a consumer yet, are released with the nacked one.
#[tokio::test]
async fn nack_releases_prefetched_messages_of_its_group() {
    let groups = ["a", "b", "a", "b", "a"];
    let messages = groups.iter().enumerate().map(|(number, group)| message(number, Some(group))).collect();
    let scripted = scripted(messages, |_| EntryResult::Successful).await;
    let source = scripted.source(".fifo");
    cancel(source.receive(5));
    let first = receive(&source, 1).await;
    assert_eq!(first[0].incoming.body, "0");
    ack(&source, &first, Ack::Nack { after: Duration::from_secs(7) }).await.remove(0).unwrap();
    let hidden: Vec<_> = scripted.requested("ChangeMessageVisibilityBatch");
    let expected = ["h-0", "h-2", "h-4"].map(|handle| (handle.to_owned(), Some(7)));
    assert_eq!(hidden, expected);
    let rest = receive(&source, 2).await;
    let bodies: Vec<_> = rest.iter().map(|message| message.incoming.body.clone()).collect();
    assert_eq!(bodies, ["1", "3"], "the other group continues");
    soon(source.close()).await;
    let hidden: Vec<_> = scripted.requested("ChangeMessageVisibilityBatch").split_off(3);
    assert_eq!(
        hidden,
        ["h-1", "h-3"].map(|handle| (handle.to_owned(), Some(0))),
        "closing gives back the rest"
    );
}

/// The source requests only as many messages as fit, by their mean size. The case of the suite would take minutes with moto.
#[tokio::test]
async fn bytes_in_flight_stay_within_the_budget() {
    const BUDGET: usize = 1 << 20;
    let large = |number| {
        let mut message = message(number, None);
        message["Body"] = "x".repeat(256 << 10).into();
        message
    };
    let scripted = scripted((0..200).map(large).collect(), |_| EntryResult::Successful).await;
    let source = scripted.builder("").with_max_bytes_in_flight(BUDGET).build().unwrap();
    let (mut count, mut largest) = (0, 0);
    while count < 200 {
        let mut held = soon(source.receive(100)).await.unwrap();
        while count + held.len() < 200
            && let Ok(received) = timeout(Duration::from_millis(50), source.receive(100)).await
        {
            held.extend(received.unwrap());
        }
        largest = largest.max(held.len());
        count += held.len();
        assert!(ack(&source, &held, Ack::Ack).await.iter().all(Result::is_ok));
    }
    assert!(largest <= 8, "{largest} messages of 256 KiB in flight");
}

/// Several requests wait only while they return full batches.
#[tokio::test]
async fn idle_source_polls_once_and_busy_source_concurrently() {
    let idle = scripted(Vec::new(), |_| EntryResult::Successful).await;
    let source = idle.source("");
    for _ in 0..5 {
        cancel(source.receive(100));
        let is_asked = async {
            while idle.receiver.log().in_flight == 0 {
                tokio::task::yield_now().await;
            }
        };
        soon(is_asked).await;
    }
    assert_eq!(idle.asked.lock().unwrap().len(), 1);

    let busy =
        scripted((0..40).map(|number| message(number, None)).collect(), |_| EntryResult::Successful).await;
    let source = busy.source("");
    receive(&source, 40).await;
    let several = async {
        while busy.receiver.log().in_flight < 2 {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        () = soon(several) => {}
        received = source.receive(100) => panic!("{received:?}"),
    }
}

/// Polls a call once and cancels it before a message arrives.
fn cancel<T>(call: impl Future<Output = T>) {
    assert!(pin!(call).poll(&mut Context::from_waker(Waker::noop())).is_pending());
}
