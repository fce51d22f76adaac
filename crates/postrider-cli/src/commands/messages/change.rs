//! Puts messages back, or removes them.

use super::{Filter, Where};
use crate::{
    answer,
    exit::Exit,
    opened::Opened,
    problem::Problem,
    shared::{Doer, Target},
};
use postrider::{
    Error, MessageId, QueueName, State,
    inspect::{Action, Inspect, ListRequest, Room},
};
use serde::Serialize;
use std::io::{self, IsTerminal};
use tokio_util::sync::CancellationToken;

/// How many are changed in one transaction of the store.
const CHUNK: usize = 1000;

#[derive(Debug, clap::Args)]
pub(crate) struct Args<W: Where> {
    #[command(flatten)]
    target: Target,

    #[command(flatten)]
    filter: Filter<W>,

    /// The messages; without them, all that the options select
    #[arg(conflicts_with_all = ["reason", "event_type", "key"])]
    ids: Vec<MessageId>,

    #[command(flatten)]
    doer: Doer,

    /// Say how many there are, and change nothing
    #[arg(long)]
    dry_run: bool,

    /// Do not ask
    #[arg(long)]
    yes: bool,

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
    fn past(self) -> &'static str {
        match self {
            Self::Requeue => "put back",
            Self::Discard => "removed",
        }
    }

    async fn change(
        self,
        inspect: &dyn Inspect,
        queue: &QueueName,
        ids: &[MessageId],
        action: &Action,
    ) -> Result<Vec<MessageId>, Error> {
        match self {
            Self::Requeue => inspect.requeue(queue, ids, action).await,
            Self::Discard => inspect.discard(queue, ids, action).await,
        }
    }
}

/// What was done, for programs. Its keys are a promise.
#[derive(Debug, Serialize)]
struct Report<'r> {
    verb: Verb,
    queue: &'r QueueName,
    /// How many were selected.
    matched: usize,
    /// How many were changed.
    changed: usize,
    dry_run: bool,
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
                selected(opened, &args, verb, &action, stop).await
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
    let (inspect, queue) = (opened.inspect(), &args.filter.queue);
    let dead_only = args.filter.place.room() == Room::Dead;
    let mut there = Vec::new();
    for id in &args.ids {
        let entry = inspect.get(queue, *id).await.map_err(problem)?;
        if entry.is_some_and(|entry| !dead_only || entry.state == State::Dead) {
            there.push(*id);
        }
    }
    let mut changed = Vec::new();
    if !args.dry_run {
        for chunk in there.chunks(CHUNK) {
            changed.extend(verb.change(&*inspect, queue, chunk, action).await.map_err(problem)?);
        }
    }
    tell(args, verb, there.len(), changed.len())?;
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

/// Changes the messages that the filter selects.
async fn selected<W: Where>(
    opened: &Opened,
    args: &Args<W>,
    verb: Verb,
    action: &Action,
    stop: &CancellationToken,
) -> Result<Exit, Problem> {
    let inspect = opened.inspect();
    let request = args.filter.request();
    let counting = stop.run_until_cancelled(count(&*inspect, &request)).await;
    let Some(matched) = counting else { return Ok(Exit::Interrupted) };
    let matched = matched.map_err(|error| opened.problem(&error))?;
    eprintln!("{matched} {} in queue {}", if matched == 1 { "message" } else { "messages" }, request.queue);
    if args.dry_run || matched == 0 {
        tell(args, verb, matched, 0)?;
        return Ok(Exit::Well);
    }
    let wanted = if args.yes { Some(true) } else { is_wanted(verb, stop).await? };
    if wanted != Some(true) {
        eprintln!("Nothing was changed.");
        return Ok(if wanted.is_none() { Exit::Interrupted } else { Exit::Failed });
    }
    let shows_progress = io::stderr().is_terminal();
    let mut progress = |looked_at: usize| {
        if shows_progress {
            eprint!("\r{looked_at} of {matched}");
        }
    };
    let (changed, ended) = all(&*inspect, &request, matched, verb, action, stop, &mut progress).await;
    if shows_progress {
        eprintln!();
    }
    tell(args, verb, matched, changed)?;
    match ended {
        Ok(true) => {
            if changed < matched {
                eprintln!("{} were in somebody's hands, or had gone meanwhile.", matched - changed);
            }
            Ok(Exit::Well)
        }
        Ok(false) => {
            eprintln!("Interrupted: {changed} of {matched} were {}. Run it again to go on.", verb.past());
            Ok(Exit::Interrupted)
        }
        Err(error) => {
            eprintln!("{changed} of {matched} were {}. Run it again to go on.", verb.past());
            Err(opened.problem(&error))
        }
    }
}

/// How many messages a request selects.
async fn count(inspect: &dyn Inspect, request: &ListRequest) -> Result<usize, Error> {
    let mut request = request.clone().with_limit(CHUNK);
    let mut counted = 0;
    loop {
        let page = inspect.list(&request).await?;
        counted += page.entries.len();
        if page.next.is_none() {
            return Ok(counted);
        }
        request.after = page.next;
    }
}

/// Changes what a request selects, chunk by chunk, oldest first. Answers how many were changed, and whether it came to the end or
/// was stopped between two chunks. It looks at no more than were counted: what was put back and failed again is not put
/// back for ever.
async fn all(
    inspect: &dyn Inspect,
    request: &ListRequest,
    matched: usize,
    verb: Verb,
    action: &Action,
    stop: &CancellationToken,
    progress: &mut dyn FnMut(usize),
) -> (usize, Result<bool, Error>) {
    let (mut looked_at, mut changed) = (0, 0);
    let mut request = request.clone();
    while looked_at < matched {
        if stop.is_cancelled() {
            return (changed, Ok(false));
        }
        request.limit = CHUNK.min(matched - looked_at);
        let page = match inspect.list(&request).await {
            Ok(page) => page,
            Err(error) => return (changed, Err(error)),
        };
        let ids: Vec<_> = page.entries.iter().filter_map(|entry| entry.message.id()).collect();
        match verb.change(inspect, &request.queue, &ids, action).await {
            Ok(done) => changed += done.len(),
            Err(error) => return (changed, Err(error)),
        }
        looked_at += page.entries.len();
        progress(looked_at);
        if page.next.is_none() {
            break;
        }
        request.after = page.next;
    }
    (changed, Ok(true))
}

/// Asks who sits there. `None` when there is a signal instead of an answer.
async fn is_wanted(verb: Verb, stop: &CancellationToken) -> Result<Option<bool>, Problem> {
    if !io::stdin().is_terminal() {
        return Err(Problem::new(
            "nobody is there to be asked whether that is wanted",
            "give --yes to do it, or --dry-run to see how many there are",
        )
        .ending(Exit::Misused));
    }
    eprint!("Shall they be {}? [y/N] ", verb.past());
    // Elsewhere, so that signals are heard meanwhile.
    let asking = tokio::task::spawn_blocking(|| {
        let mut answer = String::new();
        io::stdin().read_line(&mut answer).map(|_| answer)
    });
    let answer = stop.run_until_cancelled(asking).await;
    Ok(answer.map(|answer| matches!(answer, Ok(Ok(answer)) if matches!(answer.trim(), "y" | "Y" | "yes"))))
}

fn tell<W: Where>(args: &Args<W>, verb: Verb, matched: usize, changed: usize) -> Result<(), Problem> {
    let Args { filter, dry_run, .. } = args;
    if args.json {
        let queue = &filter.queue;
        return answer::json(&Report { verb, queue, matched, changed, dry_run: *dry_run });
    }
    answer::text(&match dry_run {
        true => format!("{matched} would be {}", verb.past()),
        false => format!("{changed} {}", verb.past()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use postrider::{ClaimRequest, Message, Outbox, Reason, Settle, Settlement, Store, memory::MemoryStore};

    const LETTERS: usize = 2500;

    async fn letters() -> (MemoryStore, ListRequest) {
        let store = MemoryStore::new();
        let queue = QueueName::stored("orders");
        let messages: Vec<_> =
            (0..LETTERS).map(|number| Message::builder("orders").json(&number).build().unwrap()).collect();
        let mut tx = store.begin();
        store.stage_all(&mut tx, &messages).await.unwrap();
        tx.commit();
        let settlement = Settlement::Dead { reason: Reason::Rejected, error: None };
        loop {
            let claimed = store.claim(&ClaimRequest::new(queue.clone(), 1000)).await.unwrap();
            if claimed.is_empty() {
                return (store, ListRequest::new(queue, Room::Dead));
            }
            let ends = claimed
                .iter()
                .map(|claimed| Settle { lease: claimed.lease.clone(), settlement: settlement.clone() });
            store.settle(&ends.collect::<Vec<_>>()).await.unwrap();
        }
    }

    #[tokio::test]
    async fn a_signal_stops_it_between_chunks_and_it_goes_on_when_it_is_run_again() {
        let (store, request) = letters().await;
        assert_eq!(count(&store, &request).await.unwrap(), LETTERS);
        let action = Action::new("nell", "mended");
        let stop = CancellationToken::new();
        let mut looks = Vec::new();
        let mut progress = |looked_at| {
            looks.push(looked_at);
            stop.cancel();
        };
        let ended = all(&store, &request, LETTERS, Verb::Requeue, &action, &stop, &mut progress).await;
        assert!(matches!(ended, (1000, Ok(false))), "{ended:?}");
        assert_eq!(looks, [1000]);
        let left = count(&store, &request).await.unwrap();
        assert_eq!(left, 1500);

        let again = CancellationToken::new();
        let ended = all(&store, &request, left, Verb::Discard, &action, &again, &mut |_| {}).await;
        assert!(matches!(ended, (1500, Ok(true))), "{ended:?}");
        assert_eq!(count(&store, &request).await.unwrap(), 0);
        let verbs: Vec<_> =
            store.audit(10).await.unwrap().into_iter().map(|row| (row.verb, row.ids.len())).collect();
        let expected = [("discard", 500), ("discard", 1000), ("requeue", 1000)];
        assert_eq!(verbs, expected.map(|(verb, ids)| (verb.to_owned(), ids)));
    }

    #[tokio::test]
    async fn no_more_are_changed_than_were_counted() {
        let (store, request) = letters().await;
        let action = Action::new("nell", "mended");
        let stop = CancellationToken::new();
        let ended = all(&store, &request, 1200, Verb::Discard, &action, &stop, &mut |_| {}).await;
        assert!(matches!(ended, (1200, Ok(true))), "{ended:?}");
        assert_eq!(count(&store, &request).await.unwrap(), LETTERS - 1200);
    }
}
