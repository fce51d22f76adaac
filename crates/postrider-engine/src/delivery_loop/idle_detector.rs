//! Detects that a run has nothing left to do: `run_until_idle` and `run_batch`.

use super::wakeup::Wakeup;
use postrider_core::Error;
use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicU64, Ordering::SeqCst},
};
use tokio_util::sync::CancellationToken;

/// How much a run that ends by itself does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RunScope {
    /// All messages that are due.
    UntilIdle,
    /// One claim per queue.
    OneBatch,
}

/// Detects that nothing is left to do.
///
/// Every change (a message was claimed, a batch was settled) increments a version. Nothing is left when every claimer has found
/// nothing in a claim that began at the present version, and nothing is in flight. A message that leaves the in-flight set
/// increments the version before it does.
#[derive(Debug)]
pub(super) struct IdleDetector {
    wakeups: Vec<Arc<Wakeup>>,
    scope: RunScope,
    version: AtomicU64,
    /// By claimer: the version at which its last empty claim began.
    empty_at: Mutex<Vec<Option<u64>>>,
    error: Mutex<Option<Error>>,
    done: CancellationToken,
}

impl IdleDetector {
    pub(super) fn new(wakeups: Vec<Arc<Wakeup>>, scope: RunScope) -> Self {
        let empty_at = Mutex::new(vec![None; wakeups.len()]);
        Self {
            wakeups,
            scope,
            version: AtomicU64::new(0),
            empty_at,
            error: Mutex::default(),
            done: CancellationToken::new(),
        }
    }

    pub(super) fn wakeups(&self) -> &[Arc<Wakeup>] {
        &self.wakeups
    }

    pub(super) fn scope(&self) -> RunScope {
        self.scope
    }

    pub(super) fn version(&self) -> u64 {
        self.version.load(SeqCst)
    }

    /// The store has changed: every claimer claims again.
    pub(super) fn note_change(&self) {
        self.version.fetch_add(1, SeqCst);
        self.wakeups.iter().for_each(|wakeup| wakeup.notify());
    }

    pub(super) fn note_empty(&self, queue_index: usize, version: u64, in_flight: usize) {
        let mut empty_at = self.empty_at.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(empty) = empty_at.get_mut(queue_index) {
            *empty = Some(version);
        }
        let now = self.version();
        if in_flight == 0 && empty_at.iter().all(|empty| *empty == Some(now)) {
            self.done.cancel();
        }
    }

    pub(super) fn fail(&self, error: Error) {
        self.error.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        self.done.cancel();
    }

    pub(super) async fn wait_until_idle(&self) {
        if self.wakeups.is_empty() {
            return;
        }
        self.done.cancelled().await;
    }

    pub(super) fn error(&self) -> Option<Error> {
        self.error.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}
