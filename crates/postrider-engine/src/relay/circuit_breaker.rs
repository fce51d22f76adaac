//! The circuit breaker of a destination.
//!
//! ```text
//!   closed ──(unavailable, or results unknown again and again)──▶ open ──(backoff)──▶ half-open: one probe
//!     ▲                                                            ▲                    │        │
//!     └──────────────────────────────(accepted)────────────────────┼────────────────────┘        │
//!                                                                  └─────────(not accepted)───────┘
//! ```
//!
//! While the circuit is open nothing is claimed for the destination, so no attempts are consumed, and messages in flight are
//! released uncounted. The same holds while an operator has paused the destination, except that no probe is sent.

use super::operator_pauses::{OperatorPauses, REFRESH_EVERY};
use crate::delivery_loop::{CircuitGate, ClaimPermit, backoff::Backoff};
use futures_util::future::BoxFuture;
use metrics::{Gauge, gauge};
use postrider_core::{Error, Store};
use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::{sync::Notify, time::Instant};

/// This many batches in a row without a known result open the circuit.
const UNKNOWN_RESULTS_TO_OPEN: u32 = 3;

pub(super) struct CircuitBreaker {
    destination: String,
    backoff_initial: Duration,
    backoff_max: Duration,
    /// Timeout of a probe: after that another one may be sent.
    probe_timeout: Duration,
    operator_pauses: Arc<OperatorPauses>,
    state: Mutex<State>,
    changed: Notify,
    up: Gauge,
}

#[derive(Debug, Default)]
struct State {
    unknown_results: u32,
    open: Option<OpenCircuit>,
}

#[derive(Debug)]
struct OpenCircuit {
    since: Instant,
    backoff: Backoff,
    /// No probe is sent before.
    retry_at: Instant,
    /// A probe is in flight, until then.
    probe_until: Option<Instant>,
}

impl CircuitBreaker {
    pub(super) fn new(
        destination: &str,
        backoff_initial: Duration,
        backoff_max: Duration,
        probe_timeout: Duration,
        operator_pauses: Arc<OperatorPauses>,
    ) -> Self {
        let up = gauge!("postrider_destination_up", "destination" => destination.to_owned());
        up.set(1.0);
        Self {
            destination: destination.to_owned(),
            backoff_initial,
            backoff_max,
            probe_timeout,
            operator_pauses,
            state: Mutex::default(),
            changed: Notify::new(),
            up,
        }
    }

    /// The number of messages, of `wanted`, that may be sent now.
    pub(super) fn permits(&self, wanted: usize) -> usize {
        if self.operator_pauses.is_paused(&self.destination) {
            return 0;
        }
        match &self.state().open {
            None => wanted,
            Some(open_circuit) if Instant::now() < open_circuit.retry_at => 0,
            Some(_) => wanted.min(1),
        }
    }

    /// Whether batches are probes.
    pub(super) fn is_open(&self) -> bool {
        self.state().open.is_some()
    }

    /// The destination accepted or rejected a message: it is available.
    pub(super) fn record_result(&self) {
        let mut state = self.state();
        state.unknown_results = 0;
        let Some(open_circuit) = state.open.take() else { return };
        drop(state);
        self.up.set(1.0);
        let (destination, lasted) = (&self.destination, open_circuit.since.elapsed());
        tracing::info!(
            name: "postrider.circuit_closed", destination, ?lasted,
            "destination {destination:?} available again after {lasted:?}; circuit closed"
        );
        self.changed.notify_waiters();
    }

    /// No publish result arrived: it is unknown which messages did.
    pub(super) fn record_unknown(&self, error: &dyn fmt::Display) {
        let is_open = {
            let mut state = self.state();
            state.unknown_results += 1;
            state.unknown_results >= UNKNOWN_RESULTS_TO_OPEN || state.open.is_some()
        };
        if is_open {
            self.open(error);
        }
    }

    /// The destination is unavailable: opens the circuit.
    pub(super) fn open(&self, error: &dyn fmt::Display) {
        let now = Instant::now();
        let (is_newly_open, retry_in) = {
            let mut state = self.state();
            let is_newly_open = state.open.is_none();
            let open_circuit = state.open.get_or_insert_with(|| OpenCircuit {
                since: now,
                backoff: Backoff::new(self.backoff_initial, self.backoff_max),
                retry_at: now,
                probe_until: None,
            });
            // Batches that were in flight together fail together: that is one failure.
            if now >= open_circuit.retry_at {
                open_circuit.retry_at = now + open_circuit.backoff.next_delay();
            }
            open_circuit.probe_until = None;
            (is_newly_open, open_circuit.retry_at - now)
        };
        if is_newly_open {
            self.up.set(0.0);
            let destination = &self.destination;
            tracing::warn!(
                name: "postrider.circuit_opened", destination, %error,
                "destination {destination:?} unavailable: {error}; circuit open, retrying in {:.1?}", retry_in
            );
        }
        self.changed.notify_waiters();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CircuitGate for CircuitBreaker {
    fn refresh<'g>(&'g self, store: &'g dyn Store) -> BoxFuture<'g, Result<(), Error>> {
        Box::pin(self.operator_pauses.refresh(store))
    }

    fn acquire(&self) -> ClaimPermit {
        if self.operator_pauses.is_paused(&self.destination) {
            return ClaimPermit::Denied(REFRESH_EVERY);
        }
        let mut state = self.state();
        let Some(open_circuit) = &mut state.open else { return ClaimPermit::Unlimited };
        let now = Instant::now();
        match open_circuit.probe_until.filter(|until| now < *until) {
            _ if now < open_circuit.retry_at => ClaimPermit::Denied(open_circuit.retry_at - now),
            Some(until) => ClaimPermit::Denied(until - now),
            None => {
                open_circuit.probe_until = Some(now + self.probe_timeout);
                ClaimPermit::Probe
            }
        }
    }

    /// A message that is not sent may belong to a claim without a probe, while the probe of another claim is in flight: then there is
    /// a second probe, which does no harm.
    fn release(&self) {
        let probe = self.state().open.as_mut().and_then(|open_circuit| open_circuit.probe_until.take());
        if probe.is_some() {
            // Another queue may have a message for the probe.
            self.changed.notify_waiters();
        }
    }

    fn changed(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.changed.notified())
    }
}

impl fmt::Debug for CircuitBreaker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CircuitBreaker")
            .field("destination", &self.destination)
            .field("is_open", &self.is_open())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    const SECOND: Duration = Duration::from_secs(1);

    fn breaker() -> CircuitBreaker {
        CircuitBreaker::new("billing", SECOND, SECOND * 4, SECOND * 10, Arc::default())
    }

    /// The longest possible backoff: jitter lengthens it by half.
    async fn pass_backoff() {
        tokio::time::advance(SECOND * 6).await;
    }

    #[tokio::test(start_paused = true)]
    async fn open_circuit_sends_one_probe_after_backoff_and_closes_on_success() {
        let breaker = breaker();
        assert_eq!((breaker.acquire(), breaker.permits(10)), (ClaimPermit::Unlimited, 10));
        breaker.open(&"refused");
        assert!(matches!(breaker.acquire(), ClaimPermit::Denied(_)));
        assert_eq!(breaker.permits(10), 0);
        pass_backoff().await;
        assert_eq!((breaker.acquire(), breaker.permits(10)), (ClaimPermit::Probe, 1));
        assert!(matches!(breaker.acquire(), ClaimPermit::Denied(_)), "one probe at a time");
        breaker.record_result();
        assert_eq!((breaker.acquire(), breaker.permits(10)), (ClaimPermit::Unlimited, 10));
    }

    #[tokio::test(start_paused = true)]
    async fn probe_that_fails_or_times_out_permits_another() {
        let breaker = breaker();
        breaker.open(&"refused");
        pass_backoff().await;
        assert_eq!(breaker.acquire(), ClaimPermit::Probe);
        breaker.open(&"refused");
        assert!(matches!(breaker.acquire(), ClaimPermit::Denied(_)));
        pass_backoff().await;
        assert_eq!(breaker.acquire(), ClaimPermit::Probe);
        breaker.release();
        assert_eq!(breaker.acquire(), ClaimPermit::Probe, "no message was claimed for the probe");
        tokio::time::advance(SECOND * 10).await;
        assert_eq!(breaker.acquire(), ClaimPermit::Probe, "the other probe timed out");
    }

    #[tokio::test(start_paused = true)]
    async fn released_probe_notifies_waiting_claimers() {
        let breaker = breaker();
        breaker.open(&"refused");
        pass_backoff().await;
        assert_eq!(breaker.acquire(), ClaimPermit::Probe);
        let changed = breaker.changed();
        assert!(matches!(breaker.acquire(), ClaimPermit::Denied(_)), "a probe is in flight");
        breaker.release();
        assert!(changed.now_or_never().is_some());
        let changed = breaker.changed();
        breaker.release();
        assert!(changed.now_or_never().is_none(), "no probe was in flight");
    }

    #[tokio::test(start_paused = true)]
    async fn repeated_unknown_results_open_the_circuit() {
        let breaker = breaker();
        for _ in 1..UNKNOWN_RESULTS_TO_OPEN {
            breaker.record_unknown(&"no answer");
            assert_eq!(breaker.acquire(), ClaimPermit::Unlimited);
        }
        breaker.record_result();
        for _ in 1..UNKNOWN_RESULTS_TO_OPEN {
            breaker.record_unknown(&"no answer");
        }
        assert_eq!(breaker.acquire(), ClaimPermit::Unlimited, "a result in between resets the count");
        breaker.record_unknown(&"no answer");
        assert!(matches!(breaker.acquire(), ClaimPermit::Denied(_)));
        pass_backoff().await;
        breaker.record_unknown(&"no answer");
        assert!(
            matches!(breaker.acquire(), ClaimPermit::Denied(_)),
            "one unknown result is enough while the circuit is open"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn batches_that_fail_together_count_as_one_failure() {
        let breaker = breaker();
        breaker.open(&"refused");
        let ClaimPermit::Denied(first) = breaker.acquire() else { panic!("the circuit is open") };
        for _ in 0..10 {
            breaker.open(&"refused");
        }
        assert_eq!(breaker.acquire(), ClaimPermit::Denied(first));
    }
}
