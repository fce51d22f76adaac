//! What would lose messages.

use super::{
    address::Address,
    line::Line,
    probe::{self, Exchange, MESSAGE_TTL, Queue, Seen},
};
use postrider_core::Finding;

/// Looks at one destination.
pub(super) async fn check(line: &Line, destination: &str) -> lapin::Result<Vec<Finding>> {
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
        let seen = probe::queue(line, &address.key).await?;
        return Ok(of_queue(&format!("queue {}", address.key), seen));
    }
    let seen = probe::exchange(line, &address.exchange).await?;
    Ok(of_exchange(&format!("exchange {}", address.exchange), seen))
}

fn of_exchange(subject: &str, seen: Seen<Exchange>) -> Vec<Finding> {
    let Exchange { is_durable, is_auto_delete, is_internal, alternate } = match seen {
        Seen::Facts(facts) => facts,
        Seen::Missing => {
            return vec![
                Finding::problem("missing_exchange", subject)
                    .because("it does not exist: every message to it is refused. It needs a durable queue that is bound to it, too")
                    .fixed_by(format!(
                        "rabbitmqadmin declare exchange name={} type=topic durable=true",
                        subject.trim_start_matches("exchange ")
                    )),
            ];
        }
        Seen::Exclusive | Seen::Hidden(_) => return vec![hidden(subject, seen)],
    };
    let mut findings = Vec::new();
    if is_internal {
        findings.push(
            Finding::problem("internal_exchange", subject)
                .because("it is internal: only other exchanges may publish to it")
                .fixed_by("publish to an exchange that is bound to it, or declare it with internal = false"),
        );
    }
    if !is_durable {
        findings.push(
            Finding::warning("transient_exchange", subject)
                .because("it is not durable: a restart of the broker removes it with its bindings, and messages are refused")
                .fixed_by("delete it and declare it with durable = true"),
        );
    }
    if is_auto_delete {
        findings.push(
            Finding::warning("auto_delete_exchange", subject)
                .because("it is deleted with its last binding, and messages are refused then")
                .fixed_by("delete it and declare it with auto_delete = false"),
        );
    }
    if let Some(alternate) = alternate {
        findings.push(
            Finding::note("alternate_exchange", subject)
                .because(format!("what no queue wants goes to {alternate:?} and is confirmed: nobody is told that it was unroutable"))
                .fixed_by(format!("watch a durable queue that is bound to {alternate:?}, or take the alternate exchange away")),
        );
    }
    findings
}

fn of_queue(subject: &str, seen: Seen<Queue>) -> Vec<Finding> {
    let queue = match seen {
        Seen::Facts(facts) => facts,
        Seen::Missing => {
            return vec![
                Finding::problem("missing_queue", subject)
                    .because("it does not exist: every message to it is unroutable and comes back")
                    .fixed_by(format!(
                        "rabbitmqadmin declare queue name={} durable=true arguments='{{\"x-queue-type\":\"quorum\"}}'",
                        subject.trim_start_matches("queue ")
                    )),
            ];
        }
        Seen::Exclusive => {
            return vec![
                Finding::problem("exclusive_queue", subject)
                    .because("it belongs to one connection, and is deleted with its messages when that ends")
                    .fixed_by("declare it with exclusive = false"),
            ];
        }
        Seen::Hidden(_) => return vec![hidden(subject, seen)],
    };
    not_lasting(subject, &queue)
}

/// How a queue loses messages that were in it.
pub(super) fn not_lasting(subject: &str, queue: &Queue) -> Vec<Finding> {
    let mut findings = Vec::new();
    if !queue.is_durable {
        findings.push(
            Finding::warning("transient_queue", subject)
                .because("it is not durable: a restart of the broker removes it with its messages")
                .fixed_by("delete it and declare it with durable = true, best with x-queue-type = quorum"),
        );
    }
    if queue.is_auto_delete {
        findings.push(
            Finding::warning("auto_delete_queue", subject)
                .because("it is deleted, with its messages, when its last consumer goes")
                .fixed_by("delete it and declare it with auto_delete = false"),
        );
    }
    if let Some(limit) = queue.drops_above() {
        findings.push(
            Finding::problem("drop_head", subject)
                .because(format!("{limit}, and what is above that pushes the oldest messages out, though they were confirmed"))
                .fixed_by("declare it with x-overflow = reject-publish, or without a limit"),
        );
    }
    for (argument, code, what) in [
        (MESSAGE_TTL, "message_ttl", "messages that nobody has read for so many milliseconds are dropped"),
        (
            "x-expires",
            "expiring_queue",
            "it is deleted, with its messages, when nobody has used it for so many milliseconds",
        ),
        ("x-max-age", "message_ttl", "messages are dropped at that age, read or not"),
    ] {
        if let Some(value) = queue.arguments.get(argument) {
            findings.push(
                Finding::warning(code, subject).because(format!("{argument} = {value}: {what}")).fixed_by(
                    format!("declare it without {argument}, or longer than any outage of its readers"),
                ),
            );
        }
    }
    findings
}

pub(super) fn hidden<T>(subject: &str, seen: Seen<T>) -> Finding {
    let why = if let Seen::Hidden(why) = seen { why } else { "it is locked".to_owned() };
    Finding::note("not_visible", subject)
        .because(format!("it exists, and the broker does not say whether it is durable and limited: {why}"))
        .fixed_by("check with a user that may configure it, or with `rabbitmqctl list_queues name durable arguments policy`")
}
