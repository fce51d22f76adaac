//! Changes all messages that a filter selects, however many they are.
//!
//! They are counted first, and the count is a fence: what comes into the room later stays there. Then they are changed chunk by chunk in
//! the store, oldest place first, each chunk in a transaction with its audit row. Nothing but numbers comes here, so it does not matter
//! how many there are. A signal stops it between two chunks; run again, it goes on with what is left.

use super::{
    Where,
    change::{Args, Verb, tell},
};
use crate::{asking, exit::Exit, moment, opened::Opened, problem::Problem, progress::Progress};
use postrider::{
    Error,
    inspect::{Action, Chunk, Operate, Room, Selected, Selection},
};
use tokio_util::sync::CancellationToken;

/// How many are changed in one transaction: others wait for it, and so does a signal.
const CHUNK: usize = 2000;

pub(super) async fn run<W: Where>(
    opened: &Opened,
    args: &Args<W>,
    verb: Verb,
    action: &Action,
    stop: &CancellationToken,
) -> Result<Exit, Problem> {
    let operate = opened.operate();
    let selection = Selection { until: args.until, ..args.filter.selection() };
    let counting = stop.run_until_cancelled(operate.tally(&selection)).await;
    let Some(selected) = counting else { return Ok(Exit::Interrupted) };
    let selected = selected.map_err(|error| opened.problem(&error))?;
    let (matched, queue) = (selected.count, &selection.queue);
    if selected.follow_ups > 0 {
        let what = format!("{} of them are follow-ups; nothing was changed", selected.follow_ups);
        return Err(verb.refuses_follow_ups(&what, queue));
    }
    eprintln!("{matched} {} in queue {queue}", if matched == 1 { "message" } else { "messages" });
    let until = selection.until.unwrap_or(selected.fence.at);
    let until = (selection.room == Room::Dead).then(|| moment::by(until));
    if args.dry_run || matched == 0 {
        tell(args, verb, matched, 0, until)?;
        return Ok(Exit::Well);
    }
    let wanted = if args.yes { Some(true) } else { asking::is_wanted(verb.past(), stop).await? };
    if wanted != Some(true) {
        eprintln!("Nothing was changed.");
        return Ok(if wanted.is_none() { Exit::Interrupted } else { Exit::Failed });
    }
    let progress = Progress::of(matched);
    let (changed, ended) =
        all(&*operate, &selection, &selected, verb, action, stop, &mut |by| progress.advance(by)).await;
    drop(progress);
    tell(args, verb, matched, changed, until.clone())?;
    let left =
        until.map(|until| format!(" What has failed again since then is left out with --until {until}."));
    let again = format!("Run it again to go on.{}", left.unwrap_or_default());
    match ended {
        Ok(true) => {
            if changed < matched {
                eprintln!("{} were in somebody's hands, or had gone meanwhile.", matched - changed);
            }
            Ok(Exit::Well)
        }
        Ok(false) => {
            eprintln!("Interrupted: {changed} of {matched} were {}. {again}", verb.past());
            Ok(Exit::Interrupted)
        }
        Err(error) => {
            eprintln!("{changed} of {matched} were {}. {again}", verb.past());
            Err(opened.problem(&error))
        }
    }
}

/// Changes what was selected, chunk by chunk. Answers how many were changed, and whether it came to the end or was stopped between two
/// chunks.
async fn all(
    operate: &dyn Operate,
    selection: &Selection,
    selected: &Selected,
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
        let done = match verb {
            Verb::Requeue => operate.requeue_next(selection, &chunk, action).await,
            Verb::Discard => operate.discard_next(selection, &chunk, action).await,
        };
        match done {
            Ok(done) => {
                changed += done.changed;
                progress(done.looked_at);
                if done.next.is_none() {
                    return (changed, Ok(true));
                }
                chunk.after = done.next;
            }
            Err(error) => return (changed, Err(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use postrider::{
        ClaimRequest, Message, Outbox, QueueName, Reason, Settle, Settlement, Store, inspect::Inspect,
        memory::MemoryStore,
    };

    const LETTERS: u64 = 4500;

    async fn letters() -> (MemoryStore, Selection) {
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
                return (store, Selection::new(queue, Room::Dead));
            }
            let ends = claimed
                .iter()
                .map(|claimed| Settle { lease: claimed.lease.clone(), settlement: settlement.clone() });
            store.settle(&ends.collect::<Vec<_>>()).await.unwrap();
        }
    }

    #[tokio::test]
    async fn a_signal_stops_it_between_chunks_and_it_goes_on_when_it_is_run_again() {
        let (store, selection) = letters().await;
        let selected = store.tally(&selection).await.unwrap();
        assert_eq!(selected.count, LETTERS);
        let action = Action::new("nell", "mended");
        let stop = CancellationToken::new();
        let mut looks = Vec::new();
        let mut progress = |by| {
            looks.push(by);
            stop.cancel();
        };
        let ended = all(&store, &selection, &selected, Verb::Requeue, &action, &stop, &mut progress).await;
        assert!(matches!(ended, (2000, Ok(false))), "{ended:?}");
        assert_eq!(looks, [2000]);
        let left = store.tally(&selection).await.unwrap();
        assert_eq!(left.count, 2500);

        let again = CancellationToken::new();
        let ended = all(&store, &selection, &left, Verb::Discard, &action, &again, &mut |_| {}).await;
        assert!(matches!(ended, (2500, Ok(true))), "{ended:?}");
        assert_eq!(store.tally(&selection).await.unwrap().count, 0);
        let verbs: Vec<_> =
            store.audit(10).await.unwrap().into_iter().map(|row| (row.verb, row.ids.len())).collect();
        let expected = [("discard", 500), ("discard", 2000), ("requeue", 2000)];
        assert_eq!(verbs, expected.map(|(verb, ids)| (verb.to_owned(), ids)));
    }
}
