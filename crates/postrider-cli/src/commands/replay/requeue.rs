//! Moves the kept messages themselves back into their queue.

use super::{Args, End, Outcome};
use crate::{open_database::OpenDatabase, progress::Progress};
use postrider::inspect::{Action, Chunk, Selection, SelectionSummary};
use tokio_util::sync::CancellationToken;

/// How many messages one transaction moves.
const CHUNK: usize = 2000;

/// A moved message is no longer among the kept ones: a second run continues with the rest, and needs no checkpoint.
pub(super) async fn run(
    opened: &OpenDatabase,
    args: &Args,
    selection: &Selection,
    selected: &SelectionSummary,
    action: &Action,
    stop: &CancellationToken,
) -> Outcome {
    let (operate, progress) = (opened.backend(), Progress::of(selected.count));
    let limit = args.rate.map_or(CHUNK, |rate| rate.batch_size(CHUNK));
    let mut ticks = args.rate.map(|rate| rate.interval(limit));
    let mut chunk = Chunk::first(selected.fence, limit);
    let mut replayed = 0;
    loop {
        if let Some(ticks) = &mut ticks {
            stop.run_until_cancelled(ticks.tick()).await;
        }
        if stop.is_cancelled() {
            return Outcome { replayed, ended: End::Stopped(None) };
        }
        match operate.requeue_next(selection, &chunk, action).await {
            Ok(step) => {
                replayed += step.changed;
                progress.advance(step.looked_at);
                if step.next.is_none() {
                    return Outcome { replayed, ended: End::Done };
                }
                chunk.after = step.next;
            }
            Err(error) => return Outcome { replayed, ended: End::Failed(opened.problem(&error), None) },
        }
    }
}
