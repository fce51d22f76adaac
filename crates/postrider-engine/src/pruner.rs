//! Pruning: every runner that is started removes expired rows from time to time, in small steps.
//!
//! No process leads: each prunes at times of its own, and finds little to do when another one has just done it. A prune that
//! fails delays nothing; it is retried at the next time.

use crate::delivery_loop::store_outage::StoreOutage;
use postrider_core::{Invalid, PruneRequest, Store};
use std::{sync::Arc, time::Duration};
use tokio::time::sleep;

/// Default interval between two prunes.
pub(crate) const PRUNE_INTERVAL: Duration = Duration::from_secs(10 * 60);
/// Rows per step: a step holds its locks for some milliseconds.
const STEP: usize = 1_000;

/// Checks the setting of a runner.
pub(crate) fn check_prune_interval(interval: Option<Duration>) -> Result<(), Invalid> {
    match interval {
        Some(Duration::ZERO) => {
            Err(Invalid::rule("prune_interval", "is zero: set a duration above zero, or None"))
        }
        _ => Ok(()),
    }
}

#[derive(Debug)]
pub(crate) struct Pruner {
    store: Arc<dyn Store>,
    request: PruneRequest,
    interval: Duration,
    outage: StoreOutage,
}

impl Pruner {
    /// Removes the rows of `request`, which always include delivered messages past their retention.
    pub(crate) fn new(store: Arc<dyn Store>, request: PruneRequest, interval: Duration) -> Self {
        Self { store, request: request.with_limit(STEP), interval, outage: StoreOutage::default() }
    }

    /// Prunes until the task is dropped.
    pub(crate) async fn run(self) {
        // Jitter keeps processes apart. The first prune comes early, for processes that do not live long.
        let mut wait = self.interval.mul_f64(rand::random_range(0.05..0.5));
        loop {
            sleep(wait).await;
            self.prune().await;
            wait = self.interval.mul_f64(rand::random_range(0.5..1.5));
        }
    }

    async fn prune(&self) {
        loop {
            match self.store.prune(&self.request).await {
                Ok(pruned) => {
                    self.outage.resolved();
                    if !pruned.more {
                        return;
                    }
                    tokio::task::yield_now().await;
                }
                Err(error) => {
                    self.outage.report("prune expired rows", &error);
                    return;
                }
            }
        }
    }
}
