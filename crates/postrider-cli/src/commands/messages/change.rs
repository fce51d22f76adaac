//! Puts messages back, or removes them.

use super::{Filter, Where, bulk};
use crate::{
    answer,
    exit::Exit,
    moment,
    opened::Opened,
    problem::Problem,
    shared::{Doer, Target},
};
use postrider::{
    Error, MessageId, QueueName, State,
    follow_up::is_one,
    inspect::{Action, Operate, Room},
};
use serde::Serialize;
use std::time::SystemTime;
use tokio_util::sync::CancellationToken;

/// How many are changed in one transaction of the store.
const CHUNK: usize = 1000;

#[derive(Debug, clap::Args)]
pub(crate) struct Args<W: Where> {
    #[command(flatten)]
    pub(super) target: Target,

    #[command(flatten)]
    pub(super) filter: Filter<W>,

    /// The messages; without them, all that the options select
    #[arg(conflicts_with_all = ["reason", "event_type", "key", "error", "since", "until"])]
    ids: Vec<MessageId>,

    /// Only those that did so by then
    #[arg(long, value_name = "MOMENT", value_parser = moment::parse)]
    pub(super) until: Option<SystemTime>,

    #[command(flatten)]
    pub(super) doer: Doer,

    /// Say how many there are, and change nothing
    #[arg(long)]
    pub(super) dry_run: bool,

    /// Do not ask
    #[arg(long)]
    pub(super) yes: bool,

    /// Print one object of JSON, and nothing else, on stdout
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
    pub(super) fn past(self) -> &'static str {
        match self {
            Self::Requeue => "put back",
            Self::Discard => "removed",
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

    /// Follow-ups have a ledger, which would not be told.
    pub(super) fn refuses_follow_ups(self, what: &str, queue: &QueueName) -> Problem {
        let advice = match self {
            Self::Requeue => {
                format!("postrider saga requeue --queue {queue} puts follow-ups back and tells the ledger")
            }
            Self::Discard => format!(
                "a follow-up that is removed keeps nobody informed: look with postrider saga show --queue {queue}, mend what it \
                 calls, and put it back with postrider saga requeue"
            ),
        };
        Problem::new(format!("queue {queue}: {what}"), advice)
    }
}

/// What was done, for programs. Its keys are a promise.
#[derive(Debug, Serialize)]
struct Report<'r> {
    verb: Verb,
    queue: &'r QueueName,
    /// How many were selected.
    matched: u64,
    /// How many were changed.
    changed: u64,
    dry_run: bool,
    /// When they were counted: what failed since was left alone. Only where they were selected, not named.
    #[serde(skip_serializing_if = "Option::is_none")]
    until: Option<String>,
}

pub(super) async fn run<W: Where>(
    args: Args<W>,
    verb: Verb,
    stop: &CancellationToken,
) -> Result<Exit, Problem> {
    let action = args.doer.action()?;
    args.target
        .work(async |opened| {
            if args.ids.is_empty() {
                bulk::run(opened, &args, verb, &action, stop).await
            } else {
                named(opened, &args, verb, &action).await
            }
        })
        .await
}

/// Changes the messages that are named.
async fn named<W: Where>(
    opened: &Opened,
    args: &Args<W>,
    verb: Verb,
    action: &Action,
) -> Result<Exit, Problem> {
    let problem = |error| opened.problem(&error);
    let (operate, queue) = (opened.operate(), &args.filter.queue);
    let dead_only = args.filter.place.room() == Room::Dead;
    let mut there = Vec::new();
    for id in &args.ids {
        let entry = operate.get(queue, *id).await.map_err(problem)?;
        let Some(entry) = entry.filter(|entry| !dead_only || entry.state == State::Dead) else { continue };
        if is_one(&entry.message) {
            return Err(verb.refuses_follow_ups(&format!("{id} is a follow-up; nothing was changed"), queue));
        }
        there.push(*id);
    }
    let mut changed = Vec::new();
    if !args.dry_run {
        for chunk in there.chunks(CHUNK) {
            changed.extend(verb.change(&*operate, queue, chunk, action).await.map_err(problem)?);
        }
    }
    tell(args, verb, there.len() as u64, changed.len() as u64, None)?;
    let left = if args.dry_run { there } else { changed };
    let missing: Vec<_> = args.ids.iter().filter(|id| !left.contains(id)).map(MessageId::to_string).collect();
    if missing.is_empty() {
        return Ok(Exit::Well);
    }
    let what = if dead_only { "no such dead letter" } else { "not there, or in somebody's hands" };
    Err(Problem::new(
        format!("queue {queue}: {what}: {}", missing.join(", ")),
        format!("look with postrider messages show --queue {queue} {}", missing[0]),
    )
    .ending(Exit::NotFound))
}

pub(super) fn tell<W: Where>(
    args: &Args<W>,
    verb: Verb,
    matched: u64,
    changed: u64,
    until: Option<String>,
) -> Result<(), Problem> {
    let Args { filter, dry_run, .. } = args;
    if args.json {
        let queue = &filter.queue;
        return answer::json(&Report { verb, queue, matched, changed, dry_run: *dry_run, until });
    }
    answer::text(&match dry_run {
        true => format!("{matched} would be {}", verb.past()),
        false => format!("{changed} {}", verb.past()),
    })
}
