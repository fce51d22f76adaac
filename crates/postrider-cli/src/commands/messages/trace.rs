//! Everything that is known of a message: where it and its copies are, what waits before it, what operators did to it, who has admitted
//! it, and the follow-ups of its subject.

use super::view::{View, text};
use crate::{
    answer, commands::saga::case::Case, exit::Exit, opened::Opened, problem::Problem, shared::Target,
    table::Table,
};
use postrider::{
    ConsumerName, MessageId, OrderingKey, QueueName, State, SubjectId, TenantId,
    cloudevents::rfc3339,
    follow_up::is_one,
    inspect::{AuditRow, Clue, Entry, InboxMark},
};
use serde::Serialize;
use std::collections::BTreeSet;
use tokio_util::sync::CancellationToken;

const EXAMPLES: &str = "Examples:
  postrider messages trace 0190f3a1-… --db shop.db              one message, in all queues
  postrider messages trace --key order-17 --db shop.db          all of a key
  postrider messages trace --trace 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01 --json --db shop.db

What was delivered is known only where its queue keeps it, and to the consumers that admitted it. A message is found by an
index. For a key or a trace, every message is looked at.";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
#[group(id = "clue", required = true, multiple = false)]
pub(crate) struct Args {
    #[command(flatten)]
    target: Target,

    /// The message
    #[arg(group = "clue")]
    id: Option<MessageId>,

    /// Everything that belongs to this trace: a traceparent, or the trace's id
    #[arg(long, value_name = "TRACEPARENT", group = "clue", value_parser = trace_id)]
    trace: Option<String>,

    /// Everything of this key
    #[arg(long, group = "clue")]
    key: Option<OrderingKey>,

    /// Only in this queue
    #[arg(long)]
    queue: Option<QueueName>,

    /// How many messages at the most
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    limit: u32,

    /// Print one object of JSON, and nothing else, on stdout
    #[arg(long)]
    json: bool,
}

/// The 32 digits that a trace is known by.
fn trace_id(text: &str) -> Result<String, String> {
    let id = text.split('-').nth(1).unwrap_or(text).to_ascii_lowercase();
    if id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Ok(id);
    }
    Err("give a traceparent such as 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01, or the 32 digits in it".to_owned())
}

/// What is known, for programs. Its keys are a promise.
#[derive(Debug, Serialize)]
struct Known {
    messages: Vec<Place>,
    inbox: Vec<Mark>,
    deeds: Vec<Deed>,
    follow_ups: Vec<Case>,
    timeline: Vec<Moment>,
    more: bool,
}

/// A message where it is.
#[derive(Debug, Serialize)]
struct Place {
    #[serde(flatten)]
    view: View,
    /// How many of its key come before it, where its queue keeps order.
    ahead: Option<u64>,
}

/// That a consumer has admitted a message.
#[derive(Debug, Serialize)]
struct Mark {
    message: MessageId,
    consumer: ConsumerName,
    at: String,
}

/// What an operator did to a message.
#[derive(Debug, Serialize)]
struct Deed {
    message: MessageId,
    at: String,
    actor: String,
    why: String,
    verb: String,
    queue: Option<QueueName>,
    /// How many it was done to at once.
    messages: usize,
}

impl Deed {
    fn of(message: MessageId, row: AuditRow) -> Self {
        let AuditRow { at, action, verb, queue, ids, .. } = row;
        let (at, messages) = (rfc3339::format(at), ids.len());
        Self { message, at, actor: action.actor, why: action.why, verb, queue, messages }
    }
}

/// Something that happened, or is to happen.
#[derive(Debug, Serialize)]
struct Moment {
    at: String,
    message: MessageId,
    queue: Option<QueueName>,
    what: String,
}

pub(super) async fn run(args: Args, stop: &CancellationToken) -> Result<Exit, Problem> {
    args.target.look(stop, async |opened| trace(opened, &args).await).await
}

async fn trace(opened: &Opened, args: &Args) -> Result<Exit, Problem> {
    let limit = args.limit as usize;
    let mut found = found(opened, args, limit.saturating_add(1)).await?;
    let more = found.len() > limit;
    found.truncate(limit);
    let known = known(opened, args.id, &found, more).await.map_err(|error| opened.problem(&error))?;
    if known.messages.is_empty() && known.inbox.is_empty() && known.deeds.is_empty() {
        return Err(Problem::new(
            "nothing is known of it",
            "what is delivered is kept only where the queue says so: postrider status shows the queues",
        )
        .ending(Exit::NotFound));
    }
    if args.json { answer::json(&known) } else { answer::text(&told(&known)) }?;
    if more {
        eprintln!("There are more messages than {limit}: raise --limit, or name a queue.");
    }
    Ok(Exit::Well)
}

async fn found(opened: &Opened, args: &Args, most: usize) -> Result<Vec<Entry>, Problem> {
    let clue = match (&args.id, &args.key, &args.trace) {
        (Some(id), ..) => Clue::Id(*id),
        (_, Some(key), _) => Clue::Key(key.clone()),
        (_, _, Some(trace)) => Clue::Trace(trace.clone()),
        (None, None, None) => return Ok(Vec::new()),
    };
    let mut found = opened.inspect().find(&clue, most).await.map_err(|error| opened.problem(&error))?;
    found.retain(|entry| args.queue.as_ref().is_none_or(|queue| queue == entry.message.queue()));
    Ok(found)
}

async fn known(
    opened: &Opened,
    named: Option<MessageId>,
    found: &[Entry],
    more: bool,
) -> Result<Known, postrider::Error> {
    let inspect = opened.inspect();
    let mut known = Known {
        messages: Vec::new(),
        inbox: Vec::new(),
        deeds: Vec::new(),
        follow_ups: Vec::new(),
        timeline: Vec::new(),
        more,
    };
    // A message that is nowhere any more may still be known by its name.
    let mut ids: BTreeSet<(MessageId, Option<TenantId>)> =
        named.filter(|_| found.is_empty()).map(|id| (id, None)).into_iter().collect();
    let mut subjects: BTreeSet<(Option<TenantId>, SubjectId)> = BTreeSet::new();
    for entry in found {
        let (message, Some(id)) = (&entry.message, entry.message.id()) else { continue };
        ids.insert((id, message.tenant().cloned()));
        subjects.extend(message.subject().map(|subject| (message.tenant().cloned(), subject.clone())));
        let ahead = inspect.ahead(message.queue(), id).await?;
        known
            .messages
            .push(Place { view: View::new(entry, false), ahead: ahead.map(|ahead| ahead.at_least) });
        known.timeline.extend(moments(entry, id));
    }
    for (id, tenant) in ids {
        for InboxMark { consumer, admitted_at } in inspect.marks(tenant.as_ref(), id).await? {
            let at = rfc3339::format(admitted_at);
            let what = format!("admitted by {consumer}");
            known.timeline.push(Moment { at: at.clone(), message: id, queue: None, what });
            known.inbox.push(Mark { message: id, consumer, at });
        }
        for row in inspect.audit_of(id, found.len().max(100)).await? {
            let deed = Deed::of(id, row);
            let queue = deed.queue.clone();
            let what = format!("{} by {}: {}", deed.verb, deed.actor, deed.why);
            known.timeline.push(Moment { at: deed.at.clone(), message: id, queue, what });
            known.deeds.push(deed);
        }
    }
    for (tenant, subject) in subjects {
        let about = inspect.find(&Clue::Subject(tenant, subject), 100).await?;
        known.follow_ups.extend(about.iter().filter(|entry| is_one(&entry.message)).filter_map(Case::of));
    }
    known.deeds.sort_by(|one, other| one.at.cmp(&other.at));
    known.timeline.sort_by(|one, other| one.at.cmp(&other.at));
    Ok(known)
}

/// When it was staged, and what its state says.
fn moments(entry: &Entry, id: MessageId) -> [Moment; 2] {
    let queue = entry.message.queue();
    let moment = |at, what| Moment { at: rfc3339::format(at), message: id, queue: Some(queue.clone()), what };
    let error = entry.error.as_ref().map(|error| format!(": {error}")).unwrap_or_default();
    let tried = format!("{} deliveries, {} failures{error}", entry.deliveries, entry.attempts);
    let now = match entry.state {
        State::Dead => format!("failed for good, {} ({tried})", text(entry.reason.as_ref())),
        State::Done => "delivered".to_owned(),
        State::Waiting => format!("due ({tried})"),
        State::Leased => format!("due; in somebody's hands now ({tried})"),
        State::Pending => format!("due; nobody has it now ({tried})"),
    };
    [moment(entry.staged_at, "staged".to_owned()), moment(entry.at, now)]
}

fn told(known: &Known) -> String {
    let mut messages =
        Table::new(["ID", "QUEUE", "STATE", "TYPE", "KEY", "BEFORE IT", "DELIVERIES", "REASON", "ERROR"]);
    for Place { view, ahead } in &known.messages {
        messages.push([
            view.id(),
            view.queue.to_string(),
            view.state.to_string(),
            text(view.event_type.as_ref()),
            text(view.key.as_ref()),
            text(ahead.as_ref()),
            view.deliveries.to_string(),
            text(view.reason.as_ref()),
            text(view.error.as_ref()),
        ]);
    }
    let mut timeline = Table::new(["AT", "MESSAGE", "QUEUE", "WHAT"]);
    for moment in &known.timeline {
        let queue = text(moment.queue.as_ref());
        timeline.push([moment.at.clone(), moment.message.to_string(), queue, moment.what.clone()]);
    }
    let mut told = String::new();
    if known.messages.is_empty() {
        told.push_str("It is in no queue any more.\n");
    } else {
        told.push_str(&messages.to_string());
    }
    told.push_str(&format!("\n{timeline}"));
    if !known.follow_ups.is_empty() {
        let follow_ups = crate::commands::saga::case::table(&known.follow_ups);
        told.push_str(&format!("\nFollow-ups of its subject:\n{follow_ups}"));
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_is_known_by_its_digits() {
        let digits = "4bf92f3577b34da6a3ce929d0e0e4736";
        assert_eq!(trace_id(digits).as_deref(), Ok(digits));
        assert_eq!(trace_id(&format!("00-{digits}-00f067aa0ba902b7-01")).as_deref(), Ok(digits));
        assert!(trace_id("17").is_err_and(|help| help.contains("00-4bf92f")));
    }
}
