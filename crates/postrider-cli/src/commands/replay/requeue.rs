//! Moves the kept messages themselves back into their queue.

use super::{Args, End, Outcome};
use crate::{open_database::OpenDatabase, progress::Progress, rate::Pacer};
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
    let (operate, progress) = (opened.operate(), Progress::of(selected.count));
    let mut limiter = Pacer::new(args.rate);
    let mut chunk = Chunk::first(selected.fence, limiter.concurrency(CHUNK));
    let mut replayed = 0;
    loop {
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
                stop.run_until_cancelled(limiter.wait(step.looked_at)).await;
            }
            Err(error) => return Outcome { replayed, ended: End::Failed(opened.problem(&error), None) },
        }
    }
}
