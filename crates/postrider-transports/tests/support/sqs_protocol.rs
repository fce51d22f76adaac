//! The protocol of SQS, on the side of the server.

#![allow(dead_code, reason = "each test binary uses a part of it")]

use super::receiver::{ReceivedRequest, ScriptedResponse};
use serde_json::{Value, json};

/// The results of the entries of a request.
#[derive(Default)]
pub(crate) struct BatchResponse {
    pub(crate) successful: Vec<Value>,
    pub(crate) failed: Vec<Value>,
}

impl BatchResponse {
    pub(crate) fn accept(&mut self, id: &str) {
        self.successful.push(json!({"Id": id, "MessageId": "m", "MD5OfMessageBody": "d"}));
    }

    pub(crate) fn refuse(&mut self, id: &str, code: &str, is_senders_fault: bool) {
        let refused = json!({"Id": id, "Code": code, "SenderFault": is_senders_fault, "Message": "said so"});
        self.failed.push(refused);
    }

    /// Applies an entry like a failing server: of all entries it refuses every seventeenth, and omits others from its
    /// response, whether it has applied them or not. A failure of `done` is the sender's fault.
    pub(crate) fn unwell(
        &mut self,
        number: usize,
        id: &str,
        done: impl FnOnce() -> Result<(), &'static str>,
    ) {
        if number.is_multiple_of(17) {
            return self.refuse(id, "InternalError", false);
        }
        if number.is_multiple_of(19) {
            return;
        }
        match done() {
            Err(code) => self.refuse(id, code, true),
            Ok(()) if number.is_multiple_of(23) => {}
            Ok(()) => self.accept(id),
        }
    }

    pub(crate) fn reply(&self) -> ScriptedResponse {
        respond(200, &json!({"Successful": self.successful, "Failed": self.failed}))
    }
}

/// The action and the body of a request.
pub(crate) fn request(arrived: &ReceivedRequest) -> (&str, Value) {
    let action = arrived.header("x-amz-target").strip_prefix("AmazonSQS.").unwrap();
    (action, serde_json::from_slice(&arrived.body).unwrap())
}

pub(crate) fn entries(arrived: &ReceivedRequest) -> Vec<Value> {
    let (action, request) = request(arrived);
    assert_eq!(action, "SendMessageBatch");
    request["Entries"].as_array().unwrap().clone()
}

pub(crate) fn respond(status: u16, answer: &Value) -> ScriptedResponse {
    ScriptedResponse::WithBody(status, answer.to_string().leak())
}
