//! Back into the same queue, the messages themselves.

use super::{Args, Course, End};
use crate::{opened::Opened, pace::Pace, progress::Progress};
use postrider::inspect::{Action, Chunk, Selected, Selection};
use tokio_util::sync::CancellationToken;

/// How many go back in one transaction.
const CHUNK: usize = 2000;

/// What is back is in the archive no more: run again, it goes on with the rest, and needs no mark.
pub(super) async fn run(
    opened: &Opened,
    args: &Args,
    selection: &Selection,
    selected: &Selected,
    action: &Action,
    stop: &CancellationToken,
) -> Course {
    let (operate, progress) = (opened.operate(), Progress::of(selected.count));
    let mut pace = Pace::new(args.rate);
    let mut chunk = Chunk::first(selected.fence, pace.at_once(CHUNK));
    let mut replayed = 0;
    loop {
        if stop.is_cancelled() {
            return Course { replayed, ended: End::Stopped(None) };
        }
        match operate.requeue_next(selection, &chunk, action).await {
            Ok(done) => {
                replayed += done.changed;
                progress.advance(done.looked_at);
                if done.next.is_none() {
                    return Course { replayed, ended: End::Done };
                }
                chunk.after = done.next;
                stop.run_until_cancelled(pace.wait(done.looked_at)).await;
            }
            Err(error) => return Course { replayed, ended: End::Failed(opened.problem(&error), None) },
        }
    }
}
