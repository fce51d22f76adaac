//! What is tried again and again: what it is called, and what mends it.
//!
//! Some faults of a destination show only when something is sent there. Over AMQP nobody can ask whether a queue is bound to an exchange, but whoever
//! has sent to it knows.

use super::database::{Patient, word};
use crate::config::ToSection;
use postrider::{
    Finding, QueueName, Template,
    inspect::{Entry, error_kind},
};
use std::collections::BTreeMap;

/// Whatever has failed as often fails for a reason.
const OFTEN: u32 = 3;

/// One finding for each kind of error among these messages of a queue.
pub(super) fn findings(patient: &Patient<'_>, queue: &QueueName, entries: &[Entry]) -> Vec<Finding> {
    let mut kinds: BTreeMap<&str, Vec<&Entry>> = BTreeMap::new();
    for entry in entries.iter().filter(|entry| entry.attempts >= OFTEN) {
        if let Some(error) = &entry.error {
            kinds.entry(error_kind(error)).or_default().push(entry);
        }
    }
    kinds.into_iter().map(|(kind, entries)| finding(patient, queue, kind, &entries)).collect()
}

fn finding(patient: &Patient<'_>, queue: &QueueName, kind: &str, entries: &[&Entry]) -> Finding {
    let subject = format!("queue {queue}");
    let often = entries.iter().map(|entry| entry.attempts).max().unwrap_or_default();
    let because = format!(
        "{} that wait for another attempt have failed with {kind}, up to {often} times each",
        entries.len()
    );
    match binding(patient, queue, kind, entries) {
        Some(binding) => Finding::problem("unroutable", subject).because(because).fixed_by(binding),
        None => Finding::warning("failing", subject).because(because).fixed_by(format!(
            "mend what {kind} tells of; postrider tail --queue {} {} shows when they get through",
            word(queue.as_str()),
            patient.option()
        )),
    }
}

/// The queue and the binding that are missing, if that is it. A queue is called after its routing key, unless yours has a name already.
fn binding(patient: &Patient<'_>, queue: &QueueName, kind: &str, entries: &[&Entry]) -> Option<String> {
    if kind != "Unroutable" {
        return None;
    }
    // What one destination of several still owes waits in a queue of its own.
    let (queue, copies_for) = match queue.as_str().split_once('>') {
        Some((queue, destination)) => (queue, Some(destination)),
        None => (queue.as_str(), None),
    };
    let is_meant = |to: &&ToSection| copies_for.is_none_or(|name| *to.destination == name);
    let to = patient.routes.iter().find(|route| *route.queue == queue)?.to.iter().find(is_meant)?;
    let address = Template::parse(to.address.as_str()).ok()?.render(&entries.first()?.message).ok()?;
    let (exchange, key) = address.split_once('/')?;
    let (exchange, key) = (word(exchange), word(key));
    Some(format!(
        "rabbitmqadmin declare queue name={key} durable=true arguments='{{\"x-queue-type\":\"quorum\"}}'\n\
         rabbitmqadmin declare binding source={exchange} destination={key} routing_key={key}"
    ))
}
