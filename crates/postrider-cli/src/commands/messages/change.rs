//! Requeues or discards messages.

use super::{Filter, StateArg, bulk};
use crate::{
    exit::Exit,
    open_database::OpenDatabase,
    output,
    problem::Problem,
    shared::{Operator, Target},
    timestamp,
};
use postrider::{
    Error, MessageId, QueueName, State,
    follow_up::is_one,
    inspect::{Action, Operate, StateFilter},
};
use serde::Serialize;
use std::time::SystemTime;
use tokio_util::sync::CancellationToken;

/// How many messages one transaction of the store changes.
const CHUNK: usize = 1000;

#[derive(Debug, clap::Args)]
pub(crate) struct Args<S: StateArg> {
    #[command(flatten)]
    pub(super) target: Target,

    #[command(flatten)]
    pub(super) filter: Filter<S>,

    /// Ids of the messages; without ids, all that the options select
    #[arg(conflicts_with_all = ["reason", "event_type", "key", "error", "since", "until"])]
    ids: Vec<MessageId>,

    /// Only messages that failed, were delivered or are due until then
    #[arg(long, value_name = "MOMENT", value_parser = timestamp::parse)]
    pub(super) until: Option<SystemTime>,

    #[command(flatten)]
    pub(super) doer: Operator,

    /// Print how many messages are selected, and change nothing
    #[arg(long)]
    pub(super) dry_run: bool,

    /// Skip the confirmation
    #[arg(long)]
    pub(super) yes: bool,

    /// Print one JSON object to stdout, and nothing else
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Verb {
    Requeue,
    Discard,
}

impl Verb {
    pub(super) fn participle(self) -> &'static str {
        match self {
            Self::Requeue => "requeued",
            Self::Discard => "discarded",
        }
    }

    async fn change(
        self,
        operate: &dyn Operate,
        queue: &QueueName,
        ids: &[MessageId],
        action: &Action,
    ) -> Result<Vec<MessageId>, Error> {
        match self {
            Self::Requeue => operate.requeue(queue, ids, action).await,
            Self::Discard => operate.discard(queue, ids, action).await,
        }
    }

    /// These commands refuse follow-ups, because they do not write to the ledger.
    pub(super) fn follow_up_problem(self, what: &str, queue: &QueueName) -> Problem {
        let advice = match self {
            Self::Requeue => {
                format!(
                    "requeue follow-ups with postrider saga requeue --queue {queue}, which writes to the ledger"
                )
            }
            Self::Discard => format!(
                "a discarded follow-up would leave no outcome in the ledger: inspect it with postrider saga show --queue {queue}, fix \
                 the service that it calls, and requeue it with postrider saga requeue"
            ),
        };
        Problem::new(format!("queue {queue}: {what}"), advice)
    }
}

/// The outcome as JSON. Its keys are stable.
#[derive(Debug, Serialize)]
struct Report<'r> {
    verb: Verb,
    queue: &'r QueueName,
    /// How many messages were selected.
    matched: u64,
    /// How many messages were changed.
    changed: u64,
    dry_run: bool,
    /// When the messages were counted; later failures were not changed. Only for a selection, not for ids.
    #[serde(skip_serializing_if = "Option::is_none")]
    until: Option<String>,
}

pub(super) async fn run<S: StateArg>(
    args: Args<S>,
    verb: Verb,
    stop: &CancellationToken,
) -> Result<Exit, Problem> {
    let action = args.doer.action()?;
    args.target
        .work(async |opened| {
            if args.ids.is_empty() {
                bulk::run(opened, &args, verb, &action, stop).await
            } else {
                change_by_id(opened, &args, verb, &action).await
            }
        })
        .await
}

/// Changes the messages with the given ids.
async fn change_by_id<S: StateArg>(
    opened: &OpenDatabase,
    args: &Args<S>,
    verb: Verb,
    action: &Action,
) -> Result<Exit, Problem> {
    let problem = |error| opened.problem(&error);
    let (operate, queue) = (opened.backend(), &args.filter.queue);
    let dead_only = args.filter.state.state() == StateFilter::Dead;
    let mut found = Vec::new();
    for id in &args.ids {
        let entry = operate.get(queue, *id).await.map_err(problem)?;
        let Some(entry) = entry.filter(|entry| !dead_only || entry.state == State::Dead) else { continue };
        if is_one(&entry.message) {
            return Err(verb.follow_up_problem(&format!("{id} is a follow-up; nothing was changed"), queue));
        }
        found.push(*id);
    }
    let mut changed = Vec::new();
    if !args.dry_run {
        for chunk in found.chunks(CHUNK) {
            changed.extend(verb.change(&*operate, queue, chunk, action).await.map_err(problem)?);
        }
    }
    print(args, verb, found.len() as u64, changed.len() as u64, None)?;
    let handled = if args.dry_run { found } else { changed };
    let missing: Vec<_> =
        args.ids.iter().filter(|id| !handled.contains(id)).map(MessageId::to_string).collect();
    if missing.is_empty() {
        return Ok(Exit::Success);
    }
    let what = if dead_only { "no such dead letter" } else { "not found, or in flight" };
    Err(Problem::new(
        format!("queue {queue}: {what}: {}", missing.join(", ")),
        format!("inspect: postrider messages show --queue {queue} {}", missing[0]),
    )
    .with_exit(Exit::NotFound))
}

pub(super) fn print<S: StateArg>(
    args: &Args<S>,
    verb: Verb,
    matched: u64,
    changed: u64,
    until: Option<String>,
) -> Result<(), Problem> {
    let Args { filter, dry_run, .. } = args;
    if args.json {
        let queue = &filter.queue;
        return output::json(&Report { verb, queue, matched, changed, dry_run: *dry_run, until });
    }
    output::text(&match dry_run {
        true => format!("{matched} would be {}", verb.participle()),
        false => format!("{changed} {}", verb.participle()),
    })
}
