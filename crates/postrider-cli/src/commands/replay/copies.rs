//! Copies: to another queue, under new ids, or straight to a destination. The kept messages stay.

use super::{Args, End, ORIGINAL, Outcome, checkpoint::Checkpoint, destination::Destination};
use crate::{open_database::OpenDatabase, problem::Problem, progress::Progress};
use postrider::{
    Invalid, Message, MessageId, StageOutcome,
    inspect::{Action, Cursor, ListRequest, MessageRow, SelectionSummary, StateFilter},
};
use tokio_util::sync::CancellationToken;

/// How many messages are read and staged in one step: they are held in memory with their payloads.
const PAGE: usize = 500;

pub(super) async fn run(
    opened: &OpenDatabase,
    args: &Args,
    selected: &SelectionSummary,
    to: Option<&Destination>,
    action: &Action,
    stop: &CancellationToken,
) -> Outcome {
    let progress = Progress::of(selected.count);
    let limit = args.rate.map_or(PAGE, |rate| rate.batch_size(PAGE));
    let mut ticks = args.rate.map(|rate| rate.interval(limit));
    // Messages that are delivered during the replay are not part of it, copies least of all.
    let until = args.until.unwrap_or(selected.fence.at).min(selected.fence.at);
    let mut checkpoint = args.after.clone();
    let mut request = ListRequest {
        key: args.key.clone(),
        event_type: args.event_type.clone(),
        limit,
        after: args.since.map(|since| Cursor { at: Some(since), position: 0 }),
        ..ListRequest::new(args.queue.clone(), StateFilter::Done)
    };
    if let Some(checkpoint) = &checkpoint {
        request.after = Some(checkpoint.cursor());
    }
    let mut replayed = 0;
    loop {
        if let Some(ticks) = &mut ticks {
            stop.run_until_cancelled(ticks.tick()).await;
        }
        if stop.is_cancelled() {
            return Outcome { replayed, ended: End::Stopped(checkpoint) };
        }
        let failed = |problem, checkpoint| Outcome { replayed, ended: End::Failed(problem, checkpoint) };
        let page = match opened.backend().list(&request).await {
            Ok(page) => page,
            Err(error) => return failed(opened.problem(&error), checkpoint),
        };
        let read = page.entries.len();
        let entries: Vec<_> = page.entries.into_iter().take_while(|entry| entry.at <= until).collect();
        let is_last = entries.len() < read || page.next.is_none();
        match copy(opened, args, to, &entries, action, stop).await {
            Ok(Some(copied)) => replayed += copied,
            Ok(None) => return Outcome { replayed, ended: End::Stopped(checkpoint) },
            Err(problem) => return failed(problem, checkpoint),
        }
        progress.advance(entries.len() as u64);
        if is_last {
            return Outcome { replayed, ended: End::Done };
        }
        checkpoint = page.next.as_ref().and_then(Checkpoint::of);
        request.after = page.next;
    }
}

/// Copies a page. `None` when it was stopped midway. A queue does not stage an id again that it already has.
async fn copy(
    opened: &OpenDatabase,
    args: &Args,
    to: Option<&Destination>,
    entries: &[MessageRow],
    action: &Action,
    stop: &CancellationToken,
) -> Result<Option<u64>, Problem> {
    let originals: Vec<_> = entries.iter().filter_map(|entry| entry.message.id()).collect();
    if originals.is_empty() {
        return Ok(Some(0));
    }
    let copies = match to {
        Some(_) => Vec::new(),
        None => copies(args, entries).map_err(|invalid| {
            Problem::new(
                format!("a kept message cannot be staged again: {invalid}"),
                "replay it without --new-ids, or leave it out with --since, --until, --type or --key",
            )
        })?,
    };
    // The audit row is written before a message is sent to a destination.
    let staged = opened.backend().replay(&args.queue, &originals, &copies, action).await;
    let staged = staged.map_err(|error| opened.problem(&error))?;
    match to {
        Some(destination) => destination.send(entries, stop).await,
        None => Ok(Some(
            staged.outcomes().iter().filter(|(_, outcome)| *outcome == StageOutcome::New).count() as u64,
        )),
    }
}

fn copies(args: &Args, entries: &[MessageRow]) -> Result<Vec<Message>, Invalid> {
    let queue = args.to_queue.as_ref().unwrap_or(&args.queue);
    let copy = |entry: &MessageRow| {
        let message = &entry.message;
        let copy = match (args.new_ids, message.id()) {
            (true, Some(id)) => message.to_builder().header(ORIGINAL, MessageId::to_string(&id)).build()?,
            _ => message.clone(),
        };
        Ok(copy.redirected(queue.clone()))
    };
    entries.iter().map(copy).collect()
}
