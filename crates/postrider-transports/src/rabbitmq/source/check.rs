//! Checks the queue for settings that lose messages before they are handled.

use crate::rabbitmq::{
    check::{durability_findings, not_visible},
    connection::BrokerConnection,
    probe::{self, MESSAGE_TTL, ProbeResult, Queue},
};
use lapin::types::ShortString;
use postrider_core::{Finding, RedeliveryWindow};
use std::time::Duration;

/// The target of rejected messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DeadLetterTarget {
    /// The queue declares no dead-letter exchange.
    NotDeclared,
    /// The dead-letter exchange does not exist.
    Missing,
    /// The dead-letter exchange exists, or the broker does not show it.
    Exists,
}

impl DeadLetterTarget {
    pub(super) async fn probe(
        connection: &BrokerConnection,
        queue: &ProbeResult<Queue>,
    ) -> lapin::Result<Self> {
        let ProbeResult::Found(queue) = queue else { return Ok(Self::Exists) };
        let Some(exchange) = queue.dead_letter_exchange() else { return Ok(Self::NotDeclared) };
        // The default exchange always exists.
        let Some(exchange) = ShortString::try_new(exchange).ok().filter(|name| !name.as_str().is_empty())
        else {
            return Ok(Self::Exists);
        };
        let is_missing = matches!(probe::exchange(connection, &exchange).await?, ProbeResult::Missing);
        Ok(if is_missing { Self::Missing } else { Self::Exists })
    }
}

pub(super) fn queue_findings(
    subject: &str,
    result: ProbeResult<Queue>,
    dead_letters: DeadLetterTarget,
    is_quorum: bool,
) -> Vec<Finding> {
    let queue = match result {
        ProbeResult::Found(queue) => queue,
        ProbeResult::Missing => {
            return vec![
                Finding::problem("missing_queue", subject)
                    .because("the queue does not exist: nothing can be received")
                    .fixed_by("declare it durable, best with x-queue-type = quorum"),
            ];
        }
        ProbeResult::Exclusive => {
            return vec![
                Finding::problem("exclusive_queue", subject)
                    .because("the queue is exclusive to another connection: no other connection may consume from it, and it is deleted with that connection")
                    .fixed_by("declare it with exclusive = false"),
            ];
        }
        ProbeResult::NotVisible(_) => return vec![not_visible(subject, result)],
    };
    if queue.is_stream() {
        return vec![
            Finding::problem("stream", subject)
                .because("the queue is a stream: a delivered message is never redelivered, even after a nack")
                .fixed_by("bind a quorum queue where the stream is bound, and consume from that queue"),
        ];
    }
    let mut findings = durability_findings(subject, &queue);
    findings.extend(dead_letter_finding(subject, &queue, dead_letters));
    findings.extend(quorum_finding(subject, &queue, is_quorum));
    findings
}

fn dead_letter_finding(subject: &str, queue: &Queue, dead_letters: DeadLetterTarget) -> Option<Finding> {
    let exchange = queue.dead_letter_exchange().unwrap_or_default();
    let (code, because) = match dead_letters {
        DeadLetterTarget::Exists => return None,
        DeadLetterTarget::NotDeclared => (
            "no_dead_letter_exchange",
            "the queue was declared without x-dead-letter-exchange: rejected messages are dropped, unless a policy, which AMQP does not show, sets one"
                .to_owned(),
        ),
        DeadLetterTarget::Missing => (
            "missing_dead_letter_exchange",
            format!("x-dead-letter-exchange = {exchange} does not exist: rejected messages are dropped"),
        ),
    };
    let limit = queue.delivery_limit().map_or_else(String::new, |limit| {
        format!(". So are messages that were redelivered {limit} times (x-delivery-limit)")
    });
    let finding = Finding::warning(code, subject).because(format!("{because}{limit}"));
    Some(finding.fixed_by(
        "declare a durable exchange with a durable queue for rejected messages, and name it in x-dead-letter-exchange",
    ))
}

fn quorum_finding(subject: &str, queue: &Queue, is_quorum: bool) -> Option<Finding> {
    match (is_quorum, queue.is_quorum()) {
        (true, false) => Some(
            Finding::warning("not_quorum", subject)
                .because("the queue is not a quorum queue, although with_quorum(true) is set: deliveries are not counted")
                .fixed_by("declare a queue with x-queue-type = quorum, or remove with_quorum(true)"),
        ),
        (false, true) => Some(
            Finding::note("deliveries_not_counted", subject)
                .because(
                    "the queue is a quorum queue and counts deliveries, but with_quorum(true) is not set",
                )
                .fixed_by("set with_quorum(true)"),
        ),
        _ => None,
    }
}

/// A message is not delivered after its TTL, however often it was requeued.
pub(super) fn redelivery_window(queue: &Queue) -> RedeliveryWindow {
    let ttl = queue.arguments.get(MESSAGE_TTL);
    match ttl.and_then(|ttl| ttl.parse().ok()) {
        Some(ttl) => {
            RedeliveryWindow::within(Duration::from_millis(ttl), format!("{MESSAGE_TTL} = {ttl} ms"))
        }
        None => RedeliveryWindow::unbounded(format!("the queue was declared without {MESSAGE_TTL}")),
    }
}
