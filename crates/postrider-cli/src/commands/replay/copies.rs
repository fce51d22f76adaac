//! Copies: into another queue, under new identities, or straight to a destination. The kept messages stay where they are.

use super::{Args, Course, End, ORIGINAL, mark::Mark, to::Place};
use crate::{opened::Opened, pace::Pace, problem::Problem, progress::Progress};
use postrider::{
    Fate, Invalid, Message, MessageId,
    inspect::{Action, Cursor, Entry, ListRequest, Room, Selected},
};
use tokio_util::sync::CancellationToken;

/// How many are read and staged at once: they are here with their payloads.
const PAGE: usize = 500;

pub(super) async fn run(
    opened: &Opened,
    args: &Args,
    selected: &Selected,
    to: Option<&Place>,
    action: &Action,
    stop: &CancellationToken,
) -> Course {
    let progress = Progress::of(selected.count);
    let mut pace = Pace::new(args.rate);
    // What is delivered while it runs is not part of it, copies least of all.
    let until = args.until.unwrap_or(selected.fence.at).min(selected.fence.at);
    let mut mark = args.after.clone();
    let mut request = ListRequest {
        key: args.key.clone(),
        event_type: args.event_type.clone(),
        limit: pace.at_once(PAGE),
        after: args.since.map(|since| Cursor { at: Some(since), place: 0 }),
        ..ListRequest::new(args.queue.clone(), Room::Archive)
    };
    if let Some(mark) = &mark {
        request.after = Some(mark.cursor());
    }
    let mut replayed = 0;
    loop {
        if stop.is_cancelled() {
            return Course { replayed, ended: End::Stopped(mark) };
        }
        let failed = |problem, mark| Course { replayed, ended: End::Failed(problem, mark) };
        let page = match opened.inspect().list(&request).await {
            Ok(page) => page,
            Err(error) => return failed(opened.problem(&error), mark),
        };
        let read = page.entries.len();
        let entries: Vec<_> = page.entries.into_iter().take_while(|entry| entry.at <= until).collect();
        let is_last = entries.len() < read || page.next.is_none();
        match copy(opened, args, to, &entries, action, stop).await {
            Ok(Some(copied)) => replayed += copied,
            Ok(None) => return Course { replayed, ended: End::Stopped(mark) },
            Err(problem) => return failed(problem, mark),
        }
        progress.advance(entries.len() as u64);
        if is_last {
            return Course { replayed, ended: End::Done };
        }
        mark = page.next.as_ref().and_then(Mark::of);
        request.after = page.next;
        stop.run_until_cancelled(pace.wait(entries.len() as u64)).await;
    }
}

/// Copies a page. `None` when it was stopped on the way. What a queue knows already by its identity is not staged again.
async fn copy(
    opened: &Opened,
    args: &Args,
    to: Option<&Place>,
    entries: &[Entry],
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
    // What goes elsewhere is written down before it goes.
    let staged = opened.operate().replay(&args.queue, &originals, &copies, action).await;
    let staged = staged.map_err(|error| opened.problem(&error))?;
    match to {
        Some(place) => place.send(entries, stop).await,
        None => Ok(Some(staged.fates().iter().filter(|(_, fate)| *fate == Fate::New).count() as u64)),
    }
}

fn copies(args: &Args, entries: &[Entry]) -> Result<Vec<Message>, Invalid> {
    let queue = args.to_queue.as_ref().unwrap_or(&args.queue);
    let copy = |entry: &Entry| {
        let message = &entry.message;
        let copy = match (args.new_ids, message.id()) {
            (true, Some(id)) => message.to_builder().header(ORIGINAL, MessageId::to_string(&id)).build()?,
            _ => message.clone(),
        };
        Ok(copy.redirected(queue.clone()))
    };
    entries.iter().map(copy).collect()
}
