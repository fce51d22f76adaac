//! Which destinations operators have paused. All destinations of a relay share what is known.

use metrics::{Gauge, gauge};
use postrider_core::{Error, Pausable, Store};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{PoisonError, RwLock},
    time::Duration,
};
use tokio::{sync::Mutex, time::Instant};

/// What is known is asked for again after so long, by whoever is about to claim.
pub(super) const LOOK_AGAIN: Duration = Duration::from_secs(1);

#[derive(Default)]
pub(super) struct Pauses {
    /// Those of this relay.
    destinations: BTreeMap<String, Gauge>,
    asked_at: Mutex<Option<Instant>>,
    paused: RwLock<BTreeSet<String>>,
}

impl Pauses {
    pub(super) fn new(destinations: impl Iterator<Item = String>) -> Self {
        let with_gauge = |name: String| {
            let paused = gauge!("postrider_destination_paused", "destination" => name.clone());
            paused.set(0.0);
            (name, paused)
        };
        Self { destinations: destinations.map(with_gauge).collect(), ..Self::default() }
    }

    /// Whether nothing may be sent to this destination.
    pub(super) fn hold(&self, destination: &str) -> bool {
        self.paused.read().unwrap_or_else(PoisonError::into_inner).contains(destination)
    }

    /// Asks the store, unless somebody did a moment ago. Nothing is claimed before the first answer.
    pub(super) async fn refresh(&self, store: &dyn Store) -> Result<(), Error> {
        let mut asked_at = self.asked_at.lock().await;
        if asked_at.is_some_and(|asked_at| asked_at.elapsed() < LOOK_AGAIN) {
            return Ok(());
        }
        let now = store.paused().await?.into_iter().filter_map(|paused| match paused.what {
            Pausable::Destination(name) if self.destinations.contains_key(name.as_str()) => {
                Some(name.as_str().to_owned())
            }
            _ => None,
        });
        self.follow(&now.collect());
        *asked_at = Some(Instant::now());
        Ok(())
    }

    fn follow(&self, now: &BTreeSet<String>) {
        let before = {
            let mut paused = self.paused.write().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *paused, now.clone())
        };
        for destination in now.difference(&before) {
            self.show(destination, 1.0);
            tracing::warn!(name: "postrider.destination_paused", destination, "it was paused; its messages wait");
        }
        for destination in before.difference(now) {
            self.show(destination, 0.0);
            tracing::info!(name: "postrider.destination_resumed", destination, "it was resumed");
        }
    }

    fn show(&self, destination: &str, value: f64) {
        if let Some(gauge) = self.destinations.get(destination) {
            gauge.set(value);
        }
    }
}

impl fmt::Debug for Pauses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pauses").field("paused", &self.paused).finish_non_exhaustive()
    }
}
