//! Destinations that operators have paused. All destinations of a relay share this state.

use metrics::{Gauge, gauge};
use postrider_core::{Error, Pausable, Store};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{PoisonError, RwLock},
    time::Duration,
};
use tokio::{sync::Mutex, time::Instant};

/// The state is refreshed before a claim when it is older than this.
pub(super) const REFRESH_EVERY: Duration = Duration::from_secs(1);

#[derive(Default)]
pub(super) struct OperatorPauses {
    /// The destinations of this relay.
    destinations: BTreeMap<String, Gauge>,
    refreshed_at: Mutex<Option<Instant>>,
    paused: RwLock<BTreeSet<String>>,
}

impl OperatorPauses {
    pub(super) fn new(destinations: impl Iterator<Item = String>) -> Self {
        let with_gauge = |name: String| {
            let paused = gauge!("postrider_destination_paused", "destination" => name.clone());
            paused.set(0.0);
            (name, paused)
        };
        Self { destinations: destinations.map(with_gauge).collect(), ..Self::default() }
    }

    /// Whether this destination is paused.
    pub(super) fn is_paused(&self, destination: &str) -> bool {
        self.paused.read().unwrap_or_else(PoisonError::into_inner).contains(destination)
    }

    /// Reads the pauses from the store, unless that was done a moment ago. Nothing is claimed before the first read.
    pub(super) async fn refresh(&self, store: &dyn Store) -> Result<(), Error> {
        let mut refreshed_at = self.refreshed_at.lock().await;
        if refreshed_at.is_some_and(|refreshed_at| refreshed_at.elapsed() < REFRESH_EVERY) {
            return Ok(());
        }
        let now = store.paused().await?.into_iter().filter_map(|paused| match paused.what {
            Pausable::Destination(name) if self.destinations.contains_key(name.as_str()) => {
                Some(name.as_str().to_owned())
            }
            _ => None,
        });
        self.apply(&now.collect());
        *refreshed_at = Some(Instant::now());
        Ok(())
    }

    fn apply(&self, now: &BTreeSet<String>) {
        let before = {
            let mut paused = self.paused.write().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *paused, now.clone())
        };
        for destination in now.difference(&before) {
            self.set_gauge(destination, 1.0);
            tracing::warn!(
                name: "postrider.destination_paused", destination,
                "destination {destination:?} paused by an operator: its messages wait"
            );
        }
        for destination in before.difference(now) {
            self.set_gauge(destination, 0.0);
            tracing::info!(name: "postrider.destination_resumed", destination, "destination {destination:?} resumed by an operator");
        }
    }

    fn set_gauge(&self, destination: &str, value: f64) {
        if let Some(gauge) = self.destinations.get(destination) {
            gauge.set(value);
        }
    }
}

impl fmt::Debug for OperatorPauses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OperatorPauses").field("paused", &self.paused).finish_non_exhaustive()
    }
}
