//! Changes all messages that a filter selects, in bulk.
//!
//! The messages are counted first, and the count is a fence: messages that enter the state later are not changed. Then the store changes
//! them chunk by chunk, lowest position first, each chunk in a transaction with its audit row. Only numbers travel to this process, so
//! memory does not depend on how many there are. A signal stops the run between two chunks; a second run continues with the rest.

use super::{
    StateArg,
    change::{Args, Verb, print},
};
use crate::{
    confirm, exit::Exit, open_database::OpenDatabase, problem::Problem, progress::Progress, timestamp,
};
use postrider::{
    Error,
    inspect::{Action, Chunk, Operate, Selection, SelectionSummary, StateFilter},
};
use tokio_util::sync::CancellationToken;

/// How many messages one transaction changes: other transactions wait for it, and so does a signal.
const CHUNK: usize = 2000;

pub(super) async fn run<S: StateArg>(
    opened: &OpenDatabase,
    args: &Args<S>,
    verb: Verb,
    action: &Action,
    stop: &CancellationToken,
) -> Result<Exit, Problem> {
    let operate = opened.backend();
    let selection = Selection { until: args.until, ..args.filter.selection() };
    let summary = stop.run_until_cancelled(operate.summarize(&selection)).await;
    let Some(selected) = summary else { return Ok(Exit::Interrupted) };
    let selected = selected.map_err(|error| opened.problem(&error))?;
    let (matched, queue) = (selected.count, &selection.queue);
    if selected.follow_ups > 0 {
        let what =
            format!("{} of the selected messages are follow-ups; nothing was changed", selected.follow_ups);
        return Err(verb.follow_up_problem(&what, queue));
    }
    eprintln!("{matched} {} in queue {queue}", if matched == 1 { "message" } else { "messages" });
    let until = selection.until.unwrap_or(selected.fence.at);
    let until = (selection.state == StateFilter::Dead).then(|| timestamp::by(until));
    if args.dry_run || matched == 0 {
        print(args, verb, matched, 0, until)?;
        return Ok(Exit::Success);
    }
    let confirmed = if args.yes { Some(true) } else { confirm::confirm(verb.participle(), stop).await? };
    if confirmed != Some(true) {
        eprintln!("Nothing was changed.");
        return Ok(if confirmed.is_none() { Exit::Interrupted } else { Exit::Failed });
    }
    let progress = Progress::of(matched);
    let (changed, outcome) =
        change_all(&*operate, &selection, &selected, verb, action, stop, &mut |by| progress.advance(by))
            .await;
    drop(progress);
    print(args, verb, matched, changed, until.clone())?;
    let hint =
        until.map(|until| format!(" To exclude messages that failed again since then, add --until {until}"));
    let again = format!("Run the command again to continue.{}", hint.unwrap_or_default());
    match outcome {
        Ok(true) => {
            if changed < matched {
                eprintln!(
                    "{} were in flight or had left the queue, and were not changed.",
                    matched - changed
                );
            }
            Ok(Exit::Success)
        }
        Ok(false) => {
            eprintln!("Interrupted: {changed} of {matched} {}. {again}", verb.participle());
            Ok(Exit::Interrupted)
        }
        Err(error) => {
            eprintln!("{changed} of {matched} {}. {again}", verb.participle());
            Err(opened.problem(&error))
        }
    }
}

/// Changes the selected messages, chunk by chunk. Returns how many were changed, and whether the run finished or was stopped between
/// two chunks.
async fn change_all(
    operate: &dyn Operate,
    selection: &Selection,
    selected: &SelectionSummary,
    verb: Verb,
    action: &Action,
    stop: &CancellationToken,
    progress: &mut dyn FnMut(u64),
) -> (u64, Result<bool, Error>) {
    let mut changed = 0;
    let mut chunk = Chunk::first(selected.fence, CHUNK);
    loop {
        if stop.is_cancelled() {
            return (changed, Ok(false));
        }
        let step = match verb {
            Verb::Requeue => operate.requeue_next(selection, &chunk, action).await,
            Verb::Discard => operate.discard_next(selection, &chunk, action).await,
        };
        match step {
            Ok(step) => {
                changed += step.changed;
                progress(step.looked_at);
                if step.next.is_none() {
                    return (changed, Ok(true));
                }
                chunk.after = step.next;
            }
            Err(error) => return (changed, Err(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use postrider::{
        ClaimRequest, LeaseSettlement, Message, Outbox, QueueName, Reason, Settlement, Store,
        inspect::Inspect, memory::MemoryStore,
    };

    const DEAD_LETTERS: u64 = 4500;

    async fn dead_letters() -> (MemoryStore, Selection) {
        let store = MemoryStore::new();
        let queue = QueueName::stored("orders");
        let messages: Vec<_> = (0..DEAD_LETTERS)
            .map(|number| Message::builder("orders").json(&number).build().unwrap())
            .collect();
        let mut tx = store.begin();
        store.stage_all(&mut tx, &messages).await.unwrap();
        tx.commit();
        let settlement = Settlement::Dead { reason: Reason::Rejected, error: None };
        loop {
            let claimed = store.claim(&ClaimRequest::new(queue.clone(), 1000)).await.unwrap();
            if claimed.is_empty() {
                return (store, Selection::new(queue, StateFilter::Dead));
            }
            let ends = claimed.iter().map(|claimed| LeaseSettlement {
                lease: claimed.lease.clone(),
                settlement: settlement.clone(),
            });
            store.settle(&ends.collect::<Vec<_>>()).await.unwrap();
        }
    }

    #[tokio::test]
    async fn signal_stops_bulk_change_between_chunks_and_second_run_continues() {
        let (store, selection) = dead_letters().await;
        let selected = store.summarize(&selection).await.unwrap();
        assert_eq!(selected.count, DEAD_LETTERS);
        let action = Action::new("nell", "fixed");
        let stop = CancellationToken::new();
        let mut steps = Vec::new();
        let mut progress = |by| {
            steps.push(by);
            stop.cancel();
        };
        let ended =
            change_all(&store, &selection, &selected, Verb::Requeue, &action, &stop, &mut progress).await;
        assert!(matches!(ended, (2000, Ok(false))), "{ended:?}");
        assert_eq!(steps, [2000]);
        let left = store.summarize(&selection).await.unwrap();
        assert_eq!(left.count, 2500);

        let again = CancellationToken::new();
        let ended = change_all(&store, &selection, &left, Verb::Discard, &action, &again, &mut |_| {}).await;
        assert!(matches!(ended, (2500, Ok(true))), "{ended:?}");
        assert_eq!(store.summarize(&selection).await.unwrap().count, 0);
        let verbs: Vec<_> =
            store.audit(10).await.unwrap().into_iter().map(|row| (row.verb, row.ids.len())).collect();
        let expected = [("discard", 500), ("discard", 2000), ("requeue", 2000)];
        assert_eq!(verbs, expected.map(|(verb, ids)| (verb.to_owned(), ids)));
    }
}
