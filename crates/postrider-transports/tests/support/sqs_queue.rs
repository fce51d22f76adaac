//! A queue of SQS on a server of the test's own, which keeps it over kills.
//!
//! What was accepted stays until it is deleted. What is handed out is hidden for as long as was asked for, comes again after that, and has another
//! receipt handle each time. A kill ends all connections, and everything that was in flight comes again at once.
//!
//! It does what the service may do, and more often:
//!
//! - of the entries of its requests it refuses some, forgets some, and does some without a word;
//! - it does what a request asks for, and its answer is lost;
//! - it hands out a message and does not hide it;
//! - it is told with an old handle to delete a message, says yes, and keeps it.

use super::{
    protocol::{Answer, request, say},
    receiver::{Arrived, Receiver, Reply},
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

/// One of so many answers is lost.
const LOST: usize = 41;
/// One of so many messages that are handed out is not hidden.
const NOT_HIDDEN: usize = 29;

pub(crate) struct SqsServer {
    receiver: Receiver,
    queue: Arc<Queue>,
}

impl SqsServer {
    pub(crate) async fn start() -> Self {
        let (receiver, queue) = (Receiver::start().await, Arc::<Queue>::default());
        let serving = Arc::clone(&queue);
        receiver.answers(move |arrived| serving.answer(arrived));
        Self { receiver, queue }
    }

    pub(crate) fn url(&self) -> String {
        self.receiver.url("")
    }

    /// How many messages are not deleted.
    pub(crate) fn len(&self) -> usize {
        self.queue.kept.lock().unwrap().messages.len()
    }

    pub(crate) async fn kill_and_restart(&self) {
        self.receiver.stop().await;
        self.queue.kept.lock().unwrap().messages.values_mut().for_each(|message| message.hidden_until = None);
        self.receiver.start_again().await;
    }
}

#[derive(Default)]
struct Queue {
    kept: Mutex<Kept>,
    /// Something may be there for those who wait.
    change: Notify,
}

impl Queue {
    fn answer(self: &Arc<Self>, arrived: &Arrived) -> Reply {
        let (action, request) = request(arrived);
        match action {
            "GetQueueUrl" => say(200, &json!({"QueueUrl": "http://sqs.example/1/orders"})),
            "GetQueueAttributes" => say(200, &json!({"Attributes": {"MessageRetentionPeriod": "345600"}})),
            "SendMessageBatch" => self.each(&request, Kept::keep),
            "DeleteMessageBatch" => self.each(&request, Kept::delete),
            "ChangeMessageVisibilityBatch" => self.each(&request, Kept::hide),
            "ReceiveMessage" => {
                let queue = Arc::clone(self);
                Reply::Later(async move { queue.receive(&request).await }.boxed().shared())
            }
            other => panic!("it cannot {other}"),
        }
    }

    fn each(&self, request: &Value, act: fn(&mut Kept, &Value) -> Result<(), &'static str>) -> Reply {
        let (mut kept, mut answer) = (self.kept.lock().unwrap(), Answer::default());
        for entry in request["Entries"].as_array().unwrap() {
            kept.entries += 1;
            answer.unwell(kept.entries, entry["Id"].as_str().unwrap(), || act(&mut kept, entry));
        }
        self.change.notify_waiters();
        kept.reply(answer.reply())
    }

    async fn receive(&self, request: &Value) -> Reply {
        let deadline = Instant::now() + seconds(&request["WaitTimeSeconds"]);
        loop {
            let change = self.change.notified();
            let next = {
                let mut kept = self.kept.lock().unwrap();
                let messages = kept.hand_out(request);
                if !messages.is_empty() || Instant::now() >= deadline {
                    return kept.reply(say(200, &json!({"Messages": messages})));
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
    /// How many of each there were.
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
    fn reply(&mut self, reply: Reply) -> Reply {
        self.answers += 1;
        if self.answers.is_multiple_of(LOST) { Reply::Cut } else { reply }
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

    /// The message whose newest handle that is.
    fn newest(&self, entry: &Value) -> Option<usize> {
        let (number, receives) = entry["ReceiptHandle"].as_str().unwrap().split_once('-').unwrap();
        let number = number.parse().unwrap();
        (self.messages.get(&number)?.receives.to_string() == receives).then_some(number)
    }
}

fn seconds(value: &Value) -> Duration {
    Duration::from_secs(value.as_u64().unwrap())
}
