//! Checks exchanges and queues for settings that lose messages.

use super::{
    address::Address,
    connection::BrokerConnection,
    probe::{self, Exchange, MESSAGE_TTL, ProbeResult, Queue},
};
use postrider_core::Finding;

/// Checks one destination.
pub(super) async fn check(connection: &BrokerConnection, destination: &str) -> lapin::Result<Vec<Finding>> {
    let address = match Address::parse(destination) {
        Ok(address) => address,
        Err(error) => {
            let fix = "write exchange/routing.key, or the name of a queue";
            return Ok(vec![
                Finding::problem("bad_destination", destination).because(error.to_string()).fixed_by(fix),
            ]);
        }
    };
    if address.exchange.as_str().is_empty() {
        let result = probe::queue(connection, &address.key).await?;
        return Ok(destination_queue_findings(&format!("queue {}", address.key), result));
    }
    let result = probe::exchange(connection, &address.exchange).await?;
    Ok(exchange_findings(&format!("exchange {}", address.exchange), result))
}

fn exchange_findings(subject: &str, result: ProbeResult<Exchange>) -> Vec<Finding> {
    let Exchange { is_durable, is_auto_delete, is_internal, alternate } = match result {
        ProbeResult::Found(found) => found,
        ProbeResult::Missing => {
            return vec![
                Finding::problem("missing_exchange", subject)
                    .because("the exchange does not exist: the broker refuses every message to it. It also needs a durable queue bound to it")
                    .fixed_by(format!(
                        "rabbitmqadmin declare exchange name={} type=topic durable=true",
                        subject.trim_start_matches("exchange ")
                    )),
            ];
        }
        ProbeResult::Exclusive | ProbeResult::NotVisible(_) => return vec![not_visible(subject, result)],
    };
    let mut findings = Vec::new();
    if is_internal {
        findings.push(
            Finding::problem("internal_exchange", subject)
                .because("the exchange is internal: only other exchanges may publish to it")
                .fixed_by("publish to an exchange that is bound to it, or declare it with internal = false"),
        );
    }
    if !is_durable {
        findings.push(
            Finding::warning("transient_exchange", subject)
                .because("the exchange is not durable: a restart of the broker removes it with its bindings, and messages are refused")
                .fixed_by("delete it and declare it with durable = true"),
        );
    }
    if is_auto_delete {
        findings.push(
            Finding::warning("auto_delete_exchange", subject)
                .because("the exchange is deleted with its last binding, and messages are refused then")
                .fixed_by("delete it and declare it with auto_delete = false"),
        );
    }
    if let Some(alternate) = alternate {
        findings.push(
            Finding::note("alternate_exchange", subject)
                .because(format!("unroutable messages go to {alternate:?} and are confirmed: the publisher does not see that they were unroutable"))
                .fixed_by(format!("watch a durable queue that is bound to {alternate:?}, or remove the alternate exchange")),
        );
    }
    findings
}

fn destination_queue_findings(subject: &str, result: ProbeResult<Queue>) -> Vec<Finding> {
    let queue = match result {
        ProbeResult::Found(found) => found,
        ProbeResult::Missing => {
            return vec![
                Finding::problem("missing_queue", subject)
                    .because("the queue does not exist: every message to it is unroutable and returned")
                    .fixed_by(format!(
                        "rabbitmqadmin declare queue name={} durable=true arguments='{{\"x-queue-type\":\"quorum\"}}'",
                        subject.trim_start_matches("queue ")
                    )),
            ];
        }
        ProbeResult::Exclusive => {
            return vec![
                Finding::problem("exclusive_queue", subject)
                    .because("the queue is exclusive to one connection, and is deleted with its messages when that connection ends")
                    .fixed_by("declare it with exclusive = false"),
            ];
        }
        ProbeResult::NotVisible(_) => return vec![not_visible(subject, result)],
    };
    durability_findings(subject, &queue)
}

/// Settings by which a queue loses stored messages.
pub(super) fn durability_findings(subject: &str, queue: &Queue) -> Vec<Finding> {
    let mut findings = Vec::new();
    if !queue.is_durable {
        findings.push(
            Finding::warning("transient_queue", subject)
                .because("the queue is not durable: a restart of the broker removes it with its messages")
                .fixed_by("delete it and declare it with durable = true, best with x-queue-type = quorum"),
        );
    }
    if queue.is_auto_delete {
        findings.push(
            Finding::warning("auto_delete_queue", subject)
                .because("the queue is deleted, with its messages, when its last consumer disconnects")
                .fixed_by("delete it and declare it with auto_delete = false"),
        );
    }
    if let Some(limit) = queue.drop_head_limit() {
        findings.push(
            Finding::problem("drop_head", subject)
                .because(format!("{limit}: above the limit the queue drops its oldest messages, although they were confirmed"))
                .fixed_by("declare it with x-overflow = reject-publish, or without a limit"),
        );
    }
    for (argument, code, effect) in [
        (
            MESSAGE_TTL,
            "message_ttl",
            "messages that are not consumed within that many milliseconds are dropped",
        ),
        (
            "x-expires",
            "expiring_queue",
            "the queue is deleted, with its messages, after that many milliseconds without use",
        ),
        ("x-max-age", "message_ttl", "messages are dropped at that age, consumed or not"),
    ] {
        if let Some(value) = queue.arguments.get(argument) {
            findings.push(
                Finding::warning(code, subject).because(format!("{argument} = {value}: {effect}")).fixed_by(
                    format!("declare it without {argument}, or with a value longer than any outage of its consumers"),
                ),
            );
        }
    }
    findings
}

pub(super) fn not_visible<T>(subject: &str, result: ProbeResult<T>) -> Finding {
    let why = if let ProbeResult::NotVisible(why) = result { why } else { "it is locked".to_owned() };
    Finding::note("not_visible", subject)
        .because(format!("it exists, but the broker does not show whether it is durable and limited: {why}"))
        .fixed_by("check with a user that has the configure permission, or with `rabbitmqctl list_queues name durable arguments policy`")
}
