//! The protocol of SQS, from the side of the server.

#![allow(dead_code, reason = "each test binary uses a part of it")]

use super::receiver::{Arrived, Reply};
use serde_json::{Value, json};

/// What became of the entries of a request.
#[derive(Default)]
pub(crate) struct Answer {
    pub(crate) successful: Vec<Value>,
    pub(crate) failed: Vec<Value>,
}

impl Answer {
    pub(crate) fn accept(&mut self, id: &str) {
        self.successful.push(json!({"Id": id, "MessageId": "m", "MD5OfMessageBody": "d"}));
    }

    pub(crate) fn refuse(&mut self, id: &str, code: &str, is_senders_fault: bool) {
        let refused = json!({"Id": id, "Code": code, "SenderFault": is_senders_fault, "Message": "said so"});
        self.failed.push(refused);
    }

    pub(crate) fn reply(&self) -> Reply {
        say(200, &json!({"Successful": self.successful, "Failed": self.failed}))
    }
}

pub(crate) fn entries(arrived: &Arrived) -> Vec<Value> {
    assert_eq!(arrived.header("x-amz-target"), "AmazonSQS.SendMessageBatch");
    let request: Value = serde_json::from_slice(&arrived.body).unwrap();
    request["Entries"].as_array().unwrap().clone()
}

pub(crate) fn say(status: u16, answer: &Value) -> Reply {
    Reply::Saying(status, answer.to_string().leak())
}
