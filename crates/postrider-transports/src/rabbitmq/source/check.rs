//! What would lose messages before they were handled.

use crate::rabbitmq::{
    check::{hidden, not_lasting},
    line::Line,
    probe::{self, MESSAGE_TTL, Queue, Seen},
};
use lapin::types::ShortString;
use postrider_core::{Finding, Redelivers};
use std::time::Duration;

/// Where refused messages go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refused {
    /// Nowhere that was declared.
    Dropped,
    /// To an exchange that does not exist.
    Lost,
    /// To an exchange.
    Kept,
}

impl Refused {
    pub(super) async fn look(line: &Line, seen: &Seen<Queue>) -> lapin::Result<Self> {
        let Seen::Facts(queue) = seen else { return Ok(Self::Kept) };
        let Some(exchange) = queue.dead_letters() else { return Ok(Self::Dropped) };
        // The default exchange is always there.
        let Some(exchange) = ShortString::try_new(exchange).ok().filter(|name| !name.as_str().is_empty())
        else {
            return Ok(Self::Kept);
        };
        let is_missing = matches!(probe::exchange(line, &exchange).await?, Seen::Missing);
        Ok(if is_missing { Self::Lost } else { Self::Kept })
    }
}

pub(super) fn of_place(subject: &str, seen: Seen<Queue>, refused: Refused, is_quorum: bool) -> Vec<Finding> {
    let queue = match seen {
        Seen::Facts(facts) => facts,
        Seen::Missing => {
            return vec![
                Finding::problem("missing_queue", subject)
                    .because("it does not exist: nothing can be received")
                    .fixed_by("declare it durable, best with x-queue-type = quorum"),
            ];
        }
        Seen::Exclusive => {
            return vec![
                Finding::problem("exclusive_queue", subject)
                    .because("it belongs to another connection: nobody else may read it, and it is deleted with that")
                    .fixed_by("declare it with exclusive = false"),
            ];
        }
        Seen::Hidden(_) => return vec![hidden(subject, seen)],
    };
    if queue.is_stream() {
        return vec![
            Finding::problem("stream", subject)
                .because("it is a stream: what was delivered never comes again, whatever is answered")
                .fixed_by("bind a quorum queue where the stream is bound, and receive from that"),
        ];
    }
    let mut findings = not_lasting(subject, &queue);
    findings.extend(of_refusing(subject, &queue, refused));
    findings.extend(of_counting(subject, &queue, is_quorum));
    findings
}

fn of_refusing(subject: &str, queue: &Queue, refused: Refused) -> Option<Finding> {
    let exchange = queue.dead_letters().unwrap_or_default();
    let (code, because) = match refused {
        Refused::Kept => return None,
        Refused::Dropped => (
            "no_dead_letter_exchange",
            "it was declared without x-dead-letter-exchange: what is refused is dropped, unless a policy, which AMQP does not show, says where it goes"
                .to_owned(),
        ),
        Refused::Lost => (
            "missing_dead_letter_exchange",
            format!("x-dead-letter-exchange = {exchange}, and that does not exist: what is refused is dropped"),
        ),
    };
    let limit = queue.delivery_limit().map_or_else(String::new, |limit| {
        format!(". So is what has come again {limit} times (x-delivery-limit)")
    });
    let finding = Finding::warning(code, subject).because(format!("{because}{limit}"));
    Some(finding.fixed_by(
        "declare a durable exchange with a durable queue for such messages, and name it in x-dead-letter-exchange",
    ))
}

fn of_counting(subject: &str, queue: &Queue, is_quorum: bool) -> Option<Finding> {
    match (is_quorum, queue.is_quorum()) {
        (true, false) => Some(
            Finding::warning("not_quorum", subject)
                .because("it is no quorum queue, though the source was told so: deliveries are not counted")
                .fixed_by("declare a queue with x-queue-type = quorum, or leave with_quorum(true) out"),
        ),
        (false, true) => Some(
            Finding::note("uncounted", subject)
                .because(
                    "it is a quorum queue and counts deliveries, and the source was not told to read that",
                )
                .fixed_by("say with_quorum(true)"),
        ),
        _ => None,
    }
}

/// A message is not delivered after its time, however often it went back.
pub(super) fn redelivers(queue: &Queue) -> Redelivers {
    let ttl = queue.arguments.get(MESSAGE_TTL);
    match ttl.and_then(|ttl| ttl.parse().ok()) {
        Some(ttl) => Redelivers::within(Duration::from_millis(ttl), format!("{MESSAGE_TTL} = {ttl} ms")),
        None => Redelivers::for_ever(format!("the queue was declared without {MESSAGE_TTL}")),
    }
}
