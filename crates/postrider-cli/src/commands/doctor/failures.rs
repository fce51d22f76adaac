//! Findings for messages that fail repeatedly: the kind of error, and its fix.
//!
//! Some faults of a destination show only when a message is sent. AMQP has no way to ask whether a queue is bound to an exchange, but
//! the error of a returned message shows it.

use super::database::{DatabaseCheck, shell_word};
use crate::{commands::check::plural, config::ToSection};
use postrider::{
    Finding, QueueName, Template,
    inspect::{MessageRow, error_kind},
};
use std::collections::BTreeMap;

/// A message with this many failed attempts is reported.
const MIN_ATTEMPTS: u32 = 3;

/// One finding for each kind of error among these messages of a queue.
pub(super) fn findings(check: &DatabaseCheck<'_>, queue: &QueueName, entries: &[MessageRow]) -> Vec<Finding> {
    let mut kinds: BTreeMap<&str, Vec<&MessageRow>> = BTreeMap::new();
    for entry in entries.iter().filter(|entry| entry.attempts >= MIN_ATTEMPTS) {
        if let Some(error) = &entry.error {
            kinds.entry(error_kind(error)).or_default().push(entry);
        }
    }
    kinds.into_iter().map(|(kind, entries)| finding(check, queue, kind, &entries)).collect()
}

fn finding(check: &DatabaseCheck<'_>, queue: &QueueName, kind: &str, entries: &[&MessageRow]) -> Finding {
    let subject = format!("queue {queue}");
    let attempts = entries.iter().map(|entry| entry.attempts).max().unwrap_or_default();
    let because = format!(
        "{} waiting for a retry failed with {kind}, up to {attempts} times each",
        plural(entries.len() as u64, "message")
    );
    match binding(check, queue, kind, entries) {
        Some(binding) => Finding::problem("unroutable", subject).because(because).fixed_by(binding),
        None => Finding::warning("failing", subject).because(because).fixed_by(format!(
            "fix the cause of {kind}; postrider tail --queue {} {} shows when the messages are delivered",
            shell_word(queue.as_str()),
            check.option()
        )),
    }
}

/// The commands that declare the missing queue and binding, for that kind of error. They name the queue after its routing key; use the
/// name of your queue if you have one.
fn binding(
    check: &DatabaseCheck<'_>,
    queue: &QueueName,
    kind: &str,
    entries: &[&MessageRow],
) -> Option<String> {
    if kind != "Unroutable" {
        return None;
    }
    // The copies for one of several destinations wait in a queue of their own.
    let (queue, copies_for) = match queue.as_str().split_once('>') {
        Some((queue, destination)) => (queue, Some(destination)),
        None => (queue.as_str(), None),
    };
    let is_target = |to: &&ToSection| copies_for.is_none_or(|name| *to.destination == name);
    let to = check.routes.iter().find(|route| *route.queue == queue)?.to.iter().find(is_target)?;
    let address = Template::parse(to.address.as_str()).ok()?.render(&entries.first()?.message).ok()?;
    let (exchange, key) = address.split_once('/')?;
    let (exchange, key) = (shell_word(exchange), shell_word(key));
    Some(format!(
        "rabbitmqadmin declare queue name={key} durable=true arguments='{{\"x-queue-type\":\"quorum\"}}'\n\
         rabbitmqadmin declare binding source={exchange} destination={key} routing_key={key}"
    ))
}
