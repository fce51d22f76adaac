//! `postrider messages` and `postrider dead`: inspects, requeues and discards messages.

mod bulk;
mod change;
mod groups;
mod ls;
mod show;
mod trace;
mod view;

use crate::{exit::Exit, problem::Problem, timestamp};
use change::Verb;
use postrider::{
    EventType, OrderingKey, QueueName, Reason,
    inspect::{ListRequest, Selection, StateFilter},
};
use std::time::SystemTime;
use tokio_util::sync::CancellationToken;

const EXAMPLES: &str = "Examples:
  postrider messages ls --queue orders --db shop.db
  postrider messages ls --queue orders --state scheduled --jsonl --db shop.db
  postrider messages show ID --payload --db shop.db
  postrider messages trace ID --db shop.db
  postrider messages requeue --queue orders ID --why 'fixed' --db shop.db
  postrider messages discard --queue orders ID --why 'a test' --db shop.db

The exit code is 4 when there is no such message.";

const DEAD_EXAMPLES: &str = "Examples:
  postrider dead groups --db shop.db
  postrider dead ls --queue orders --reason rejected --since 2h --db shop.db
  postrider dead show --queue orders ID --payload --db shop.db
  postrider dead requeue --queue orders ID --why 'address fixed' --db shop.db
  postrider dead requeue --queue orders --reason rejected --dry-run \\
    --why 'rule fixed' --db shop.db
  postrider dead requeue --queue orders --error 'no such address' --yes \\
    --why 'address fixed' --db shop.db
  postrider dead discard --queue orders --type order.test --yes \\
    --why 'only tests' --db shop.db

A requeued message keeps its id and the order of its key. Every change writes
an audit row with the actor and the reason. Bulk changes run in steps, oldest
first. Ctrl-C stops between two steps; run again to continue with the rest.
The exit code is 4 when there is no such message.";

#[derive(Debug, clap::Subcommand)]
#[command(after_help = EXAMPLES)]
pub(crate) enum Messages {
    /// List the messages of a queue, oldest first
    Ls(ls::Args<AnyState>),
    /// Show one message in any state
    Show(show::Args),
    /// Trace a message, a key or a trace id through all queues
    #[command(
        override_usage = "postrider messages trace [OPTIONS] --db <PATH|URL>\n                 <ID|--trace <TRACEPARENT>|--key <KEY>>"
    )]
    Trace(trace::Args),
    /// Requeue dead letters, by id or by filter
    #[command(
        override_usage = "postrider messages requeue [OPTIONS] --db <PATH|URL> --queue <QUEUE>\n                 --why <WHY> [IDS]..."
    )]
    Requeue(change::Args<DeadState>),
    /// Discard messages that are not in flight, by id or by filter
    #[command(
        override_usage = "postrider messages discard [OPTIONS] --db <PATH|URL> --queue <QUEUE>\n                 --why <WHY> [IDS]..."
    )]
    Discard(change::Args<AnyState>),
}

#[derive(Debug, clap::Subcommand)]
#[command(after_help = DEAD_EXAMPLES)]
pub(crate) enum DeadLetters {
    /// Count dead letters by queue, reason and kind of error
    Groups(groups::Args),
    /// List the dead letters of a queue, longest dead first
    Ls(ls::Args<DeadState>),
    /// Show one dead letter
    Show(show::Args),
    /// Requeue dead letters, by id or by filter
    #[command(
        override_usage = "postrider dead requeue [OPTIONS] --db <PATH|URL> --queue <QUEUE>\n                 --why <WHY> [IDS]..."
    )]
    Requeue(change::Args<DeadState>),
    /// Discard dead letters, by id or by filter
    #[command(
        override_usage = "postrider dead discard [OPTIONS] --db <PATH|URL> --queue <QUEUE>\n                 --why <WHY> [IDS]..."
    )]
    Discard(change::Args<DeadState>),
}

impl Messages {
    pub(crate) async fn run(self, stop: CancellationToken) -> Result<Exit, Problem> {
        match self {
            Self::Ls(args) => ls::run(args, &stop).await,
            Self::Show(args) => show::run(args, None, &stop).await,
            Self::Trace(args) => trace::run(args, &stop).await,
            Self::Requeue(args) => change::run(args, Verb::Requeue, &stop).await,
            Self::Discard(args) => change::run(args, Verb::Discard, &stop).await,
        }
    }
}

impl DeadLetters {
    pub(crate) async fn run(self, stop: CancellationToken) -> Result<Exit, Problem> {
        match self {
            Self::Groups(args) => groups::run(args, &stop).await,
            Self::Ls(args) => ls::run(args, &stop).await,
            Self::Show(args) => show::run(args, Some(StateFilter::Dead), &stop).await,
            Self::Requeue(args) => change::run(args, Verb::Requeue, &stop).await,
            Self::Discard(args) => change::run(args, Verb::Discard, &stop).await,
        }
    }
}

/// The state of the selected messages: an option, or fixed by the subcommand.
pub(crate) trait StateArg: clap::Args {
    fn state(&self) -> StateFilter;
}

/// Dead letters only.
#[derive(Debug, clap::Args)]
pub(crate) struct DeadState {}

impl StateArg for DeadState {
    fn state(&self) -> StateFilter {
        StateFilter::Dead
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct AnyState {
    /// State: ready (due, in flight or not), scheduled (timers and retries), dead, or done (kept after delivery)
    #[arg(long, default_value = "ready", value_parser = parse_state)]
    state: StateFilter,
}

impl StateArg for AnyState {
    fn state(&self) -> StateFilter {
        self.state
    }
}

fn parse_state(text: &str) -> Result<StateFilter, String> {
    match text {
        "ready" => Ok(StateFilter::Ready),
        "scheduled" => Ok(StateFilter::Scheduled),
        "dead" => Ok(StateFilter::Dead),
        "done" => Ok(StateFilter::Done),
        "later" => Err("this state is now called scheduled".to_owned()),
        "archive" => Err("this state is now called done".to_owned()),
        _ => Err("give ready, scheduled, dead or done".to_owned()),
    }
}

/// Selects messages of a queue.
#[derive(Debug, clap::Args)]
pub(crate) struct Filter<S: StateArg> {
    /// Queue
    #[arg(long)]
    queue: QueueName,

    #[command(flatten)]
    state: S,

    /// Only dead letters with this reason: max_deliveries, retries_exhausted, rejected or undecodable
    #[arg(long)]
    reason: Option<Reason>,

    /// Only messages of this type
    #[arg(long = "type", value_name = "TYPE")]
    event_type: Option<EventType>,

    /// Only messages with this key
    #[arg(long)]
    key: Option<OrderingKey>,

    /// Only messages whose last error begins with this, as postrider dead groups shows it
    #[arg(long, value_name = "PREFIX")]
    error: Option<String>,

    /// Only messages that failed, were delivered or are due since: 2026-10-14T12:00:00Z, or 2h for two hours ago
    #[arg(long, value_name = "MOMENT", value_parser = timestamp::parse)]
    since: Option<SystemTime>,
}

impl<S: StateArg> Filter<S> {
    fn request(&self) -> ListRequest {
        ListRequest {
            key: self.key.clone(),
            event_type: self.event_type.clone(),
            reason: self.reason,
            error: self.error.clone(),
            ..ListRequest::new(self.queue.clone(), self.state.state())
        }
    }

    fn selection(&self) -> Selection {
        Selection {
            since: self.since,
            key: self.key.clone(),
            event_type: self.event_type.clone(),
            reason: self.reason,
            error: self.error.clone(),
            ..Selection::new(self.queue.clone(), self.state.state())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_with_former_name_gives_new_name() {
        assert_eq!(parse_state("scheduled"), Ok(StateFilter::Scheduled));
        assert!(parse_state("later").is_err_and(|error| error.contains("scheduled")));
        assert!(parse_state("archive").is_err_and(|error| error.contains("done")));
        assert!(parse_state("attic").is_err_and(|error| error.contains("ready, scheduled, dead or done")));
    }
}
