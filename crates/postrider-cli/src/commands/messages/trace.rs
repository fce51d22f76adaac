//! The path of a message: the queues that hold it and its copies, the messages ahead of it, the actions of operators, the consumers
//! that admitted it, and the follow-ups of its subject.

use super::view::{MessageView, text};
use crate::{
    commands::saga::follow_up::FollowUpView, exit::Exit, open_database::OpenDatabase, output,
    problem::Problem, shared::Target, table::Table,
};
use postrider::{
    ConsumerName, MessageId, OrderingKey, QueueName, State, SubjectId, TenantId,
    cloudevents::rfc3339,
    follow_up::is_one,
    inspect::{AuditRow, DeduplicationRecord, FindBy, MessageRow},
};
use serde::Serialize;
use std::collections::BTreeSet;
use tokio_util::sync::CancellationToken;

const EXAMPLES: &str = "Examples:
  postrider messages trace 0190f3a1-… --db shop.db      one message
  postrider messages trace --key order-17 --db shop.db  all messages of a key
  postrider messages trace --trace 4bf92f3577b34da6a3ce929d0e0e4736 --db shop.db

A delivered message is found only when its queue keeps it, or in the inbox of
the consumers that admitted it. An id is found by an index; a key or a trace
takes a scan of all messages. The exit code is 4 when nothing is found.";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
#[group(id = "find_by", required = true, multiple = false)]
pub(crate) struct Args {
    #[command(flatten)]
    target: Target,

    /// Id of the message
    #[arg(group = "find_by")]
    id: Option<MessageId>,

    /// All messages of this trace: a traceparent, or a trace id
    #[arg(long, value_name = "TRACEPARENT", group = "find_by", value_parser = trace_id)]
    trace: Option<String>,

    /// All messages with this key
    #[arg(long, group = "find_by")]
    key: Option<OrderingKey>,

    /// Only in this queue
    #[arg(long)]
    queue: Option<QueueName>,

    /// Maximum number of messages
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    limit: u32,

    /// Print one JSON object to stdout, and nothing else
    #[arg(long)]
    json: bool,
}

/// The trace id: 32 hexadecimal digits.
fn trace_id(text: &str) -> Result<String, String> {
    let id = text.split('-').nth(1).unwrap_or(text).to_ascii_lowercase();
    if id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Ok(id);
    }
    Err("give a traceparent such as 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01, or its trace id of 32 digits".to_owned())
}

/// The trace as JSON. Its keys are stable.
#[derive(Debug, Serialize)]
struct Trace {
    messages: Vec<TracedMessage>,
    inbox: Vec<InboxEntry>,
    actions: Vec<OperatorAction>,
    follow_ups: Vec<FollowUpView>,
    timeline: Vec<TimelineEvent>,
    more: bool,
}

/// A message in a queue.
#[derive(Debug, Serialize)]
struct TracedMessage {
    #[serde(flatten)]
    view: MessageView,
    /// How many messages of its key are ahead of it, in an ordered queue.
    ahead: Option<u64>,
}

/// A deduplication record: a consumer admitted the message.
#[derive(Debug, Serialize)]
struct InboxEntry {
    message: MessageId,
    consumer: ConsumerName,
    at: String,
}

/// An action of an operator on a message.
#[derive(Debug, Serialize)]
struct OperatorAction {
    message: MessageId,
    at: String,
    actor: String,
    why: String,
    verb: String,
    queue: Option<QueueName>,
    /// How many messages the action changed.
    messages: usize,
}

impl OperatorAction {
    fn of(message: MessageId, row: AuditRow) -> Self {
        let AuditRow { at, action, verb, queue, ids, .. } = row;
        let (at, messages) = (rfc3339::format(at), ids.len());
        Self { message, at, actor: action.actor, why: action.why, verb, queue, messages }
    }
}

/// A past or future event.
#[derive(Debug, Serialize)]
struct TimelineEvent {
    at: String,
    message: MessageId,
    queue: Option<QueueName>,
    event: String,
}

pub(super) async fn run(args: Args, stop: &CancellationToken) -> Result<Exit, Problem> {
    args.target.look(stop, async |opened| trace(opened, &args).await).await
}

async fn trace(opened: &OpenDatabase, args: &Args) -> Result<Exit, Problem> {
    let limit = args.limit as usize;
    let mut found = find(opened, args, limit.saturating_add(1)).await?;
    let more = found.len() > limit;
    found.truncate(limit);
    let trace = collect(opened, args.id, &found, more).await.map_err(|error| opened.problem(&error))?;
    if trace.messages.is_empty() && trace.inbox.is_empty() && trace.actions.is_empty() {
        return Err(Problem::new(
            "no such message, in any queue, inbox or audit row",
            "check the id, key or trace; a queue keeps delivered messages only with keep_for",
        )
        .with_exit(Exit::NotFound));
    }
    if args.json { output::json(&trace) } else { output::text(&to_text(&trace)) }?;
    if more {
        eprintln!("More than {limit} messages match: raise --limit, or name a queue.");
    }
    Ok(Exit::Success)
}

async fn find(opened: &OpenDatabase, args: &Args, limit: usize) -> Result<Vec<MessageRow>, Problem> {
    let find_by = match (&args.id, &args.key, &args.trace) {
        (Some(id), ..) => FindBy::Id(*id),
        (_, Some(key), _) => FindBy::Key(key.clone()),
        (_, _, Some(trace)) => FindBy::Trace(trace.clone()),
        (None, None, None) => return Ok(Vec::new()),
    };
    let mut found = opened.backend().find(&find_by, limit).await.map_err(|error| opened.problem(&error))?;
    found.retain(|entry| args.queue.as_ref().is_none_or(|queue| queue == entry.message.queue()));
    Ok(found)
}

async fn collect(
    opened: &OpenDatabase,
    named: Option<MessageId>,
    found: &[MessageRow],
    more: bool,
) -> Result<Trace, postrider::Error> {
    let inspect = opened.backend();
    let mut trace = Trace {
        messages: Vec::new(),
        inbox: Vec::new(),
        actions: Vec::new(),
        follow_ups: Vec::new(),
        timeline: Vec::new(),
        more,
    };
    // A message that no queue holds any more may still have audit rows and deduplication records.
    let mut ids: BTreeSet<(MessageId, Option<TenantId>)> =
        named.filter(|_| found.is_empty()).map(|id| (id, None)).into_iter().collect();
    let mut subjects: BTreeSet<(Option<TenantId>, SubjectId)> = BTreeSet::new();
    for entry in found {
        let (message, Some(id)) = (&entry.message, entry.message.id()) else { continue };
        ids.insert((id, message.tenant().cloned()));
        subjects.extend(message.subject().map(|subject| (message.tenant().cloned(), subject.clone())));
        let ahead = inspect.ahead(message.queue(), id).await?;
        trace.messages.push(TracedMessage {
            view: MessageView::new(entry, false),
            ahead: ahead.map(|ahead| ahead.at_least),
        });
        trace.timeline.extend(events(entry, id));
    }
    for (id, tenant) in ids {
        for DeduplicationRecord { consumer, admitted_at } in
            inspect.deduplication_records(tenant.as_ref(), id).await?
        {
            let at = rfc3339::format(admitted_at);
            let event = format!("admitted by {consumer}");
            trace.timeline.push(TimelineEvent { at: at.clone(), message: id, queue: None, event });
            trace.inbox.push(InboxEntry { message: id, consumer, at });
        }
        for row in inspect.audit_of(id, found.len().max(100)).await? {
            let action = OperatorAction::of(id, row);
            let queue = action.queue.clone();
            let event = format!("{} by {}: {}", action.verb, action.actor, action.why);
            trace.timeline.push(TimelineEvent { at: action.at.clone(), message: id, queue, event });
            trace.actions.push(action);
        }
    }
    for (tenant, subject) in subjects {
        let about = inspect.find(&FindBy::Subject(tenant, subject), 100).await?;
        trace
            .follow_ups
            .extend(about.iter().filter(|entry| is_one(&entry.message)).filter_map(FollowUpView::of));
    }
    trace.actions.sort_by(|one, other| one.at.cmp(&other.at));
    trace.timeline.sort_by(|one, other| one.at.cmp(&other.at));
    Ok(trace)
}

/// When the message was staged, and the event that its state implies.
fn events(entry: &MessageRow, id: MessageId) -> [TimelineEvent; 2] {
    let queue = entry.message.queue();
    let event_at =
        |at, event| TimelineEvent { at: rfc3339::format(at), message: id, queue: Some(queue.clone()), event };
    let error = entry.error.as_ref().map(|error| format!(": {error}")).unwrap_or_default();
    let attempts = format!("{} deliveries, {} failures{error}", entry.deliveries, entry.attempts);
    let now = match entry.state {
        State::Dead => format!("failed permanently, {} ({attempts})", text(entry.reason.as_ref())),
        State::Done => "delivered".to_owned(),
        State::Scheduled => format!("due ({attempts})"),
        State::Leased => format!("due; in flight now ({attempts})"),
        State::Pending => format!("due; not claimed now ({attempts})"),
    };
    [event_at(entry.staged_at, "staged".to_owned()), event_at(entry.at, now)]
}

fn to_text(trace: &Trace) -> String {
    let mut messages =
        Table::new(["ID", "QUEUE", "STATE", "TYPE", "KEY", "AHEAD", "DELIVERIES", "REASON", "ERROR"]);
    for TracedMessage { view, ahead } in &trace.messages {
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
    let mut timeline = Table::new(["AT", "MESSAGE", "QUEUE", "EVENT"]);
    for event in &trace.timeline {
        let queue = text(event.queue.as_ref());
        timeline.push([event.at.clone(), event.message.to_string(), queue, event.event.clone()]);
    }
    let mut output = String::new();
    if trace.messages.is_empty() {
        output.push_str("No queue holds the message any more.\n");
    } else {
        output.push_str(&messages.to_string());
    }
    output.push_str(&format!("\n{timeline}"));
    if !trace.follow_ups.is_empty() {
        let follow_ups = crate::commands::saga::follow_up::table(&trace.follow_ups);
        output.push_str(&format!("\nFollow-ups of the subject:\n{follow_ups}"));
    }
    output
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trace_id_parses_from_digits_and_from_traceparent() {
        let digits = "4bf92f3577b34da6a3ce929d0e0e4736";
        assert_eq!(trace_id(digits).as_deref(), Ok(digits));
        assert_eq!(trace_id(&format!("00-{digits}-00f067aa0ba902b7-01")).as_deref(), Ok(digits));
        assert!(trace_id("17").is_err_and(|help| help.contains("00-4bf92f")));
    }
}
