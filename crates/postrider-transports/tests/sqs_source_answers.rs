//! What becomes of each answer, one by one, and what a server says that does not do as it was told.

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
use postrider_core::{Answer, Parcel, Source, SourceError};
use postrider_testkit::{Kind, shared};
use postrider_transports::sqs::{SqsSource, SqsTransport};
use queues::builder;
use receiver::{Arrived, Receiver, Reply};
use serde_json::{Value, json};
use server::{Aws, options, unique};
use std::{
    pin::pin,
    sync::{Arc, Mutex},
    task::{Context, Waker},
    time::Duration,
};
use support::{orders, publish, soon};

async fn aws() -> Aws {
    Aws::at(&shared::url(Kind::Sqs)).await
}

async fn receive(source: &SqsSource, count: usize) -> Vec<Parcel> {
    let mut parcels = Vec::new();
    while parcels.len() < count {
        parcels.extend(soon(source.receive(count - parcels.len())).await.unwrap());
    }
    parcels
}

async fn answer(source: &SqsSource, parcels: &[Parcel], with: Answer) -> Vec<Result<(), SourceError>> {
    let answers: Vec<_> = parcels.iter().map(|parcel| (parcel.ticket.clone(), with)).collect();
    soon(source.answer(&answers)).await
}

/// What is refused keeps its attributes, whatever their type, in the queue for such.
#[tokio::test]
async fn what_is_refused_goes_to_its_queue() {
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
        let source = builder(&shared::url(Kind::Sqs), &name).with_refused_to(&dead).build().unwrap();
        let parcels = receive(&source, 1).await;
        assert_eq!(parcels[0].incoming.headers, [("count".to_owned(), "17".to_owned())]);
        answer(&source, &parcels, Answer::Refuse).await.remove(0).unwrap();
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

/// What cannot be put aside is not deleted.
#[tokio::test]
async fn what_cannot_be_put_aside_comes_again() {
    let (aws, name) = (aws().await, unique("orders"));
    aws.queue(&name, &[]).await;
    let url = shared::url(Kind::Sqs);
    publish(&SqsTransport::new(options(&url)).unwrap(), &orders(1, &name)).await;
    let source = builder(&url, &name).with_refused_to("missing").build().unwrap();
    let parcels = receive(&source, 1).await;
    let told = answer(&source, &parcels, Answer::Refuse).await.remove(0);
    assert!(matches!(told, Err(SourceError::Down { .. })), "{told:?}");
    answer(&source, &parcels, Answer::AT_ONCE).await.remove(0).unwrap();
    let again = receive(&source, 1).await;
    assert_eq!(again[0].deliveries, Some(2));
    answer(&source, &again, Answer::Done).await.remove(0).unwrap();
}

/// An hour or the whole limit: the message stays hidden.
#[tokio::test]
async fn a_long_delay_is_taken() {
    let (aws, name) = (aws().await, unique("orders"));
    let queue = aws.queue(&name, &[]).await;
    let url = shared::url(Kind::Sqs);
    publish(&SqsTransport::new(options(&url)).unwrap(), &orders(2, &name)).await;
    let source = builder(&url, &name).build().unwrap();
    let parcels = receive(&source, 2).await;
    let hour = Answer::Again { after: Duration::from_secs(3600) };
    answer(&source, &parcels[..1], hour).await.remove(0).unwrap();
    let for_ever = Answer::Again { after: Duration::MAX };
    answer(&source, &parcels[1..], for_ever).await.remove(0).unwrap();
    assert!(aws.drain(&queue).await.is_empty());
}

#[tokio::test]
async fn a_ticket_of_another_source_is_stale() {
    let (aws, name) = (aws().await, unique("orders"));
    aws.queue(&name, &[]).await;
    let url = shared::url(Kind::Sqs);
    publish(&SqsTransport::new(options(&url)).unwrap(), &orders(1, &name)).await;
    let (source, other) = (builder(&url, &name).build().unwrap(), builder(&url, &name).build().unwrap());
    let parcels = receive(&source, 1).await;
    let told = answer(&other, &parcels, Answer::Done).await.remove(0);
    assert!(matches!(told, Err(SourceError::Stale { .. })), "{told:?}");
    answer(&source, &parcels, Answer::Done).await.remove(0).unwrap();
    for with in [Answer::Done, Answer::AT_ONCE, Answer::Refuse] {
        let told = answer(&source, &parcels, with).await.remove(0);
        assert!(matches!(told, Err(SourceError::Stale { .. })), "{with:?}: {told:?}");
    }
    let tickets = [parcels[0].ticket.clone()];
    assert!(matches!(soon(source.extend(&tickets)).await[0], Err(SourceError::Stale { .. })));
}

/// The request that waited at the closing gets what is sent next, and gives it back; otherwise it would be hidden from everybody for an hour.
#[tokio::test]
async fn what_comes_after_the_closing_goes_back() {
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
    assert!(matches!(received, Err(SourceError::Down { .. })), "{received:?}");
    publish(&SqsTransport::new(options(&url)).unwrap(), &orders(1, &name)).await;
    let heir = builder(&url, &name).build().unwrap();
    let parcels = receive(&heir, 1).await;
    answer(&heir, &parcels, Answer::Done).await.remove(0).unwrap();
}

/// A server that says 200 to everything, and what it is told to of each entry.
struct Scripted {
    receiver: Receiver,
    asked: Arc<Mutex<Vec<(String, Value)>>>,
}

/// What is said of an entry.
enum Verdict {
    Successful,
    /// A code, and whether it is the sender's fault.
    Failed(&'static str, bool),
    NotMentioned,
}

/// Hands out these messages, and says of each receipt handle what it is told to.
async fn scripted(messages: Vec<Value>, verdict: fn(&str) -> Verdict) -> Scripted {
    let (receiver, asked) = (Receiver::start().await, Arc::<Mutex<Vec<(String, Value)>>>::default());
    let (left, seen) = (Mutex::new(messages), Arc::clone(&asked));
    receiver.answers(move |arrived: &Arrived| {
        let action = arrived.header("x-amz-target").trim_start_matches("AmazonSQS.").to_owned();
        let request: Value = serde_json::from_slice(&arrived.body).unwrap();
        seen.lock().unwrap().push((action.clone(), request.clone()));
        let say = |answer: Value| Reply::Saying(200, answer.to_string().leak());
        if action == "ReceiveMessage" {
            let mut left = left.lock().unwrap();
            if left.is_empty() {
                return Reply::Silence;
            }
            let most =
                usize::try_from(request["MaxNumberOfMessages"].as_u64().unwrap()).unwrap().min(left.len());
            return say(json!({"Messages": left.drain(..most).collect::<Vec<_>>()}));
        }
        let (mut successful, mut failed) = (Vec::new(), Vec::new());
        for entry in request["Entries"].as_array().unwrap() {
            match verdict(entry["ReceiptHandle"].as_str().unwrap()) {
                Verdict::Successful => successful.push(json!({"Id": entry["Id"]})),
                Verdict::Failed(code, fault) => {
                    failed.push(
                        json!({"Id": entry["Id"], "Code": code, "SenderFault": fault, "Message": "said so"}),
                    );
                }
                Verdict::NotMentioned => {}
            }
        }
        say(json!({"Successful": successful, "Failed": failed}))
    });
    Scripted { receiver, asked }
}

impl Scripted {
    fn source(&self, ending: &str) -> SqsSource {
        let url = format!("http://{}", self.receiver.address);
        let queue = format!("{url}/1/orders{ending}");
        SqsSource::builder(options(&url), queue)
            .with_visibility_timeout(Duration::from_secs(60))
            .build()
            .unwrap()
    }

    /// The handles that an action was asked for, and for how long.
    fn asked(&self, action: &str) -> Vec<(String, Option<i64>)> {
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

/// A status of 200 hides entries that failed, and entries that it does not mention.
#[tokio::test]
async fn every_answer_has_the_result_of_its_own_entry() {
    let verdict = |handle: &str| match handle {
        "h-1" => Verdict::Failed("ReceiptHandleIsInvalid", true),
        "h-2" => Verdict::Failed("InternalError", false),
        "h-3" => Verdict::NotMentioned,
        _ => Verdict::Successful,
    };
    for with in [Answer::Done, Answer::AT_ONCE, Answer::Refuse] {
        let scripted = scripted((0..12).map(|number| message(number, None)).collect(), verdict).await;
        let source = scripted.source("");
        let parcels = receive(&source, 12).await;
        let told = answer(&source, &parcels, with).await;
        for (number, told) in told.iter().enumerate() {
            match number {
                1 => assert!(matches!(told, Err(SourceError::Stale { .. })), "{with:?}: {told:?}"),
                2 | 3 => assert!(matches!(told, Err(SourceError::Down { .. })), "{with:?}: {told:?}"),
                _ => assert!(told.is_ok(), "{with:?} {number}: {told:?}"),
            }
        }
        // What did not get through can be said again; what was answered or is lost cannot.
        let again = answer(&source, &parcels, with).await;
        let is_down = |told: &Result<(), SourceError>| matches!(told, Err(SourceError::Down { .. }));
        assert_eq!(again.iter().filter(|told| is_down(told)).count(), 2, "{again:?}");
        assert!(again.iter().all(Result::is_err));
    }
}

/// The group's next ones, which were fetched and not given to anybody yet, go back with the one that comes again.
#[tokio::test]
async fn what_was_fetched_behind_goes_back_with_what_comes_again() {
    let groups = ["a", "b", "a", "b", "a"];
    let messages = groups.iter().enumerate().map(|(number, group)| message(number, Some(group))).collect();
    let scripted = scripted(messages, |_| Verdict::Successful).await;
    let source = scripted.source(".fifo");
    give_up(source.receive(5));
    let first = receive(&source, 1).await;
    assert_eq!(first[0].incoming.body, "0");
    answer(&source, &first, Answer::Again { after: Duration::from_secs(7) }).await.remove(0).unwrap();
    let hidden: Vec<_> = scripted.asked("ChangeMessageVisibilityBatch");
    let expected = ["h-0", "h-2", "h-4"].map(|handle| (handle.to_owned(), Some(7)));
    assert_eq!(hidden, expected);
    let rest = receive(&source, 2).await;
    let bodies: Vec<_> = rest.iter().map(|parcel| parcel.incoming.body.clone()).collect();
    assert_eq!(bodies, ["1", "3"], "the other group goes on");
    soon(source.close()).await;
    let hidden: Vec<_> = scripted.asked("ChangeMessageVisibilityBatch").split_off(3);
    assert_eq!(
        hidden,
        ["h-1", "h-3"].map(|handle| (handle.to_owned(), Some(0))),
        "closing gives back the rest"
    );
}

/// Many requests wait only while they come back full.
#[tokio::test]
async fn an_idle_source_has_one_request_waiting_and_a_busy_one_has_several() {
    let idle = scripted(Vec::new(), |_| Verdict::Successful).await;
    let source = idle.source("");
    for _ in 0..5 {
        give_up(source.receive(100));
        let is_asked = async {
            while idle.receiver.seen().under_way == 0 {
                tokio::task::yield_now().await;
            }
        };
        soon(is_asked).await;
    }
    assert_eq!(idle.asked.lock().unwrap().len(), 1);

    let busy = scripted((0..40).map(|number| message(number, None)).collect(), |_| Verdict::Successful).await;
    let source = busy.source("");
    receive(&source, 40).await;
    let several = async {
        while busy.receiver.seen().under_way < 2 {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        () = soon(several) => {}
        received = source.receive(100) => panic!("{received:?}"),
    }
}

/// A call that has asked for something, and is given up before anything came.
fn give_up<T>(call: impl Future<Output = T>) {
    assert!(pin!(call).poll(&mut Context::from_waker(Waker::noop())).is_pending());
}
