//! An SQS queue on a server of the test's own, which keeps its messages across kills.
//!
//! Accepted messages stay until they are deleted. A delivered message is invisible for the requested time, is redelivered after it, and has another
//! receipt handle each time. A kill ends all connections, and all messages in flight are redelivered at once.
//!
//! It fails in the ways in which the service may fail, and more often:
//!
//! - it refuses some entries of requests, ignores some, and applies some without listing them;
//! - it applies a request, and its response is lost;
//! - it delivers a message and leaves it visible;
//! - it confirms the deletion of a message by an old receipt handle, and keeps the message.

use super::{
    protocol::{BatchResponse, request, respond},
    receiver::{ReceivedRequest, Receiver, ScriptedResponse},
};
use futures_util::FutureExt;
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::{
    sync::Notify,
    time::{Instant, timeout_at},
};

/// One response of this many is lost.
const LOST: usize = 41;
/// One delivered message of this many stays visible.
const NOT_HIDDEN: usize = 29;

pub(crate) struct SqsServer {
    receiver: Receiver,
    queue: Arc<Queue>,
}

impl SqsServer {
    pub(crate) async fn start() -> Self {
        let (receiver, queue) = (Receiver::start().await, Arc::<Queue>::default());
        let serving = Arc::clone(&queue);
        receiver.respond_with(move |arrived| serving.ack(arrived));
        Self { receiver, queue }
    }

    pub(crate) fn url(&self) -> String {
        self.receiver.url("")
    }

    /// The number of messages that are not deleted.
    pub(crate) fn len(&self) -> usize {
        self.queue.kept.lock().unwrap().messages.len()
    }

    pub(crate) async fn kill_and_restart(&self) {
        self.receiver.stop().await;
        self.queue.kept.lock().unwrap().messages.values_mut().for_each(|message| message.hidden_until = None);
        self.receiver.restart().await;
    }
}

#[derive(Default)]
struct Queue {
    kept: Mutex<Kept>,
    /// Notified when a message may be available.
    change: Notify,
}

impl Queue {
    fn ack(self: &Arc<Self>, arrived: &ReceivedRequest) -> ScriptedResponse {
        let (action, request) = request(arrived);
        match action {
            "GetQueueUrl" => respond(200, &json!({"QueueUrl": "http://sqs.example/1/orders"})),
            "GetQueueAttributes" => {
                respond(200, &json!({"Attributes": {"MessageRetentionPeriod": "345600"}}))
            }
            "SendMessageBatch" => self.each(&request, Kept::keep),
            "DeleteMessageBatch" => self.each(&request, Kept::delete),
            "ChangeMessageVisibilityBatch" => self.each(&request, Kept::hide),
            "ReceiveMessage" => {
                let queue = Arc::clone(self);
                ScriptedResponse::Later(async move { queue.receive(&request).await }.boxed().shared())
            }
            other => panic!("it cannot {other}"),
        }
    }

    fn each(
        &self,
        request: &Value,
        act: fn(&mut Kept, &Value) -> Result<(), &'static str>,
    ) -> ScriptedResponse {
        let (mut kept, mut answer) = (self.kept.lock().unwrap(), BatchResponse::default());
        for entry in request["Entries"].as_array().unwrap() {
            kept.entries += 1;
            answer.unwell(kept.entries, entry["Id"].as_str().unwrap(), || act(&mut kept, entry));
        }
        self.change.notify_waiters();
        kept.reply(answer.reply())
    }

    async fn receive(&self, request: &Value) -> ScriptedResponse {
        let deadline = Instant::now() + seconds(&request["WaitTimeSeconds"]);
        loop {
            let change = self.change.notified();
            let next = {
                let mut kept = self.kept.lock().unwrap();
                let messages = kept.hand_out(request);
                if !messages.is_empty() || Instant::now() >= deadline {
                    return kept.reply(respond(200, &json!({"Messages": messages})));
                }
                kept.messages.values().filter_map(|message| message.hidden_until).min()
            };
            timeout_at(next.map_or(deadline, |next| next.min(deadline)), change).await.ok();
        }
    }
}

#[derive(Default)]
struct Kept {
    messages: BTreeMap<usize, Message>,
    /// Counters of injected failures.
    accepted: usize,
    entries: usize,
    handed_out: usize,
    answers: usize,
}

struct Message {
    body: Value,
    attributes: Value,
    receives: usize,
    hidden_until: Option<Instant>,
}

impl Message {
    fn is_hidden(&self) -> bool {
        self.hidden_until.is_some_and(|until| until > Instant::now())
    }
}

impl Kept {
    fn reply(&mut self, reply: ScriptedResponse) -> ScriptedResponse {
        self.answers += 1;
        if self.answers.is_multiple_of(LOST) { ScriptedResponse::Disconnect } else { reply }
    }

    fn keep(&mut self, entry: &Value) -> Result<(), &'static str> {
        let (body, attributes) = (entry["MessageBody"].clone(), entry["MessageAttributes"].clone());
        self.accepted += 1;
        self.messages.insert(self.accepted, Message { body, attributes, receives: 0, hidden_until: None });
        Ok(())
    }

    fn hand_out(&mut self, request: &Value) -> Vec<Value> {
        let most = usize::try_from(request["MaxNumberOfMessages"].as_u64().unwrap()).unwrap();
        let until = Instant::now() + seconds(&request["VisibilityTimeout"]);
        let mut messages = Vec::new();
        for (number, message) in
            self.messages.iter_mut().filter(|(_, message)| !message.is_hidden()).take(most)
        {
            self.handed_out += 1;
            message.receives += 1;
            message.hidden_until = (!self.handed_out.is_multiple_of(NOT_HIDDEN)).then_some(until);
            messages.push(json!({
                "MessageId": format!("m-{number}"),
                "ReceiptHandle": format!("{number}-{}", message.receives),
                "Body": message.body,
                "MessageAttributes": message.attributes,
                "Attributes": {"ApproximateReceiveCount": message.receives.to_string()},
            }));
        }
        messages
    }

    fn delete(&mut self, entry: &Value) -> Result<(), &'static str> {
        if let Some(number) = self.newest(entry) {
            self.messages.remove(&number);
        }
        Ok(())
    }

    fn hide(&mut self, entry: &Value) -> Result<(), &'static str> {
        let number = self.newest(entry).ok_or("InvalidParameterValue")?;
        let message = self.messages.get_mut(&number).filter(|message| message.is_hidden());
        let message = message.ok_or("AWS.SimpleQueueService.MessageNotInflight")?;
        message.hidden_until = Some(Instant::now() + seconds(&entry["VisibilityTimeout"]));
        Ok(())
    }

    /// The message whose newest receipt handle this is.
    fn newest(&self, entry: &Value) -> Option<usize> {
        let (number, receives) = entry["ReceiptHandle"].as_str().unwrap().split_once('-').unwrap();
        let number = number.parse().unwrap();
        (self.messages.get(&number)?.receives.to_string() == receives).then_some(number)
    }
}

fn seconds(value: &Value) -> Duration {
    Duration::from_secs(value.as_u64().unwrap())
}
