//! Leaving a destination alone while nothing gets through.
//!
//! ```text
//!   works ──(nothing gets through, or silence again and again)──▶ down ──(pause)──▶ one message is tried
//!     ▲                                                            ▲                    │        │
//!     └──────────────────────────────(accepted)────────────────────┼────────────────────┘        │
//!                                                                  └─────────(not accepted)───────┘
//! ```
//!
//! While it is down nothing is claimed for it, so no attempts are burnt, and what is in hand is handed back uncounted. So it is while
//! an operator has paused it, except that nothing is tried.

use super::pauses::{LOOK_AGAIN, Pauses};
use crate::carry::{Gate, Passage, trouble::Backoff};
use futures_util::future::BoxFuture;
use metrics::{Gauge, gauge};
use postrider_core::{Error, Store};
use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::{sync::Notify, time::Instant};

/// So many batches in a row without any answer count as down.
const SILENCES: u32 = 3;

pub(super) struct Breaker {
    destination: String,
    first_pause: Duration,
    longest_pause: Duration,
    /// How long a message that is tried may take: after that another one may be.
    trial: Duration,
    pauses: Arc<Pauses>,
    state: Mutex<State>,
    changed: Notify,
    up: Gauge,
}

#[derive(Debug, Default)]
struct State {
    silences: u32,
    down: Option<Down>,
}

#[derive(Debug)]
struct Down {
    since: Instant,
    backoff: Backoff,
    /// Nothing is tried before.
    until: Instant,
    /// A message was let through to be tried, until then.
    trying_until: Option<Instant>,
}

impl Breaker {
    pub(super) fn new(
        destination: &str,
        first_pause: Duration,
        longest_pause: Duration,
        trial: Duration,
        pauses: Arc<Pauses>,
    ) -> Self {
        let up = gauge!("postrider_destination_up", "destination" => destination.to_owned());
        up.set(1.0);
        Self {
            destination: destination.to_owned(),
            first_pause,
            longest_pause,
            trial,
            pauses,
            state: Mutex::default(),
            changed: Notify::new(),
            up,
        }
    }

    /// How many of `wanted` messages may be sent now.
    pub(super) fn admits(&self, wanted: usize) -> usize {
        if self.pauses.hold(&self.destination) {
            return 0;
        }
        match &self.state().down {
            None => wanted,
            Some(down) if Instant::now() < down.until => 0,
            Some(_) => wanted.min(1),
        }
    }

    /// Something was accepted, or refused by somebody who is there.
    pub(super) fn answered(&self) {
        let mut state = self.state();
        state.silences = 0;
        let Some(down) = state.down.take() else { return };
        drop(state);
        self.up.set(1.0);
        let (destination, lasted) = (&self.destination, down.since.elapsed());
        tracing::info!(name: "postrider.destination_up", destination, ?lasted, "messages get through again");
        self.changed.notify_waiters();
    }

    /// There was no answer: nobody knows what arrived.
    pub(super) fn was_silent(&self, error: &dyn fmt::Display) {
        let is_down = {
            let mut state = self.state();
            state.silences += 1;
            state.silences >= SILENCES || state.down.is_some()
        };
        if is_down {
            self.went_down(error);
        }
    }

    /// Nothing gets through.
    pub(super) fn went_down(&self, error: &dyn fmt::Display) {
        let now = Instant::now();
        let is_news = {
            let mut state = self.state();
            let is_news = state.down.is_none();
            let down = state.down.get_or_insert_with(|| Down {
                since: now,
                backoff: Backoff::new(self.first_pause, self.longest_pause),
                until: now,
                trying_until: None,
            });
            // Batches that were under way together fail together: that is one failure.
            if now >= down.until {
                down.until = now + down.backoff.pause();
            }
            down.trying_until = None;
            is_news
        };
        if is_news {
            self.up.set(0.0);
            let destination = &self.destination;
            tracing::warn!(
                name: "postrider.destination_down", destination, %error,
                "nothing gets through; its messages wait"
            );
        }
        self.changed.notify_waiters();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Gate for Breaker {
    fn prepare<'g>(&'g self, store: &'g dyn Store) -> BoxFuture<'g, Result<(), Error>> {
        Box::pin(self.pauses.refresh(store))
    }

    fn look(&self) -> Passage {
        if self.pauses.hold(&self.destination) {
            return Passage::Shut(LOOK_AGAIN);
        }
        let mut state = self.state();
        let Some(down) = &mut state.down else { return Passage::Open };
        let now = Instant::now();
        match down.trying_until.filter(|until| now < *until) {
            _ if now < down.until => Passage::Shut(down.until - now),
            Some(until) => Passage::Shut(until - now),
            None => {
                down.trying_until = Some(now + self.trial);
                Passage::One
            }
        }
    }

    fn put_back(&self) {
        let trial = self.state().down.as_mut().and_then(|down| down.trying_until.take());
        if trial.is_some() {
            // Somebody else may have a message to try it with.
            self.changed.notify_waiters();
        }
    }

    fn changed(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.changed.notified())
    }
}

impl fmt::Debug for Breaker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_down = self.state().down.is_some();
        f.debug_struct("Breaker").field("destination", &self.destination).field("is_down", &is_down).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    const SECOND: Duration = Duration::from_secs(1);

    fn breaker() -> Breaker {
        Breaker::new("billing", SECOND, SECOND * 4, SECOND * 10, Arc::default())
    }

    /// The longest pause there can be: chance lengthens it by half.
    async fn pause() {
        tokio::time::advance(SECOND * 6).await;
    }

    #[tokio::test(start_paused = true)]
    async fn one_message_is_tried_after_a_pause_and_opens_the_gate() {
        let breaker = breaker();
        assert_eq!((breaker.look(), breaker.admits(10)), (Passage::Open, 10));
        breaker.went_down(&"refused");
        assert!(matches!(breaker.look(), Passage::Shut(_)));
        assert_eq!(breaker.admits(10), 0);
        pause().await;
        assert_eq!((breaker.look(), breaker.admits(10)), (Passage::One, 1));
        assert!(matches!(breaker.look(), Passage::Shut(_)), "one at a time");
        breaker.answered();
        assert_eq!((breaker.look(), breaker.admits(10)), (Passage::Open, 10));
    }

    #[tokio::test(start_paused = true)]
    async fn a_trial_that_fails_or_never_ends_makes_room_for_another() {
        let breaker = breaker();
        breaker.went_down(&"refused");
        pause().await;
        assert_eq!(breaker.look(), Passage::One);
        breaker.went_down(&"refused");
        assert!(matches!(breaker.look(), Passage::Shut(_)));
        pause().await;
        assert_eq!(breaker.look(), Passage::One);
        breaker.put_back();
        assert_eq!(breaker.look(), Passage::One, "there was nothing to try it with");
        tokio::time::advance(SECOND * 10).await;
        assert_eq!(breaker.look(), Passage::One, "nobody heard of the other again");
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_waits_for_a_trial_is_told_when_there_was_nothing_to_try_it_with() {
        let breaker = breaker();
        breaker.went_down(&"refused");
        pause().await;
        assert_eq!(breaker.look(), Passage::One);
        let changed = breaker.changed();
        assert!(matches!(breaker.look(), Passage::Shut(_)), "somebody tries it");
        breaker.put_back();
        assert!(changed.now_or_never().is_some());
        let changed = breaker.changed();
        breaker.put_back();
        assert!(changed.now_or_never().is_none(), "nobody had tried it");
    }

    #[tokio::test(start_paused = true)]
    async fn silence_counts_when_it_goes_on() {
        let breaker = breaker();
        for _ in 1..SILENCES {
            breaker.was_silent(&"no answer");
            assert_eq!(breaker.look(), Passage::Open);
        }
        breaker.answered();
        for _ in 1..SILENCES {
            breaker.was_silent(&"no answer");
        }
        assert_eq!(breaker.look(), Passage::Open, "an answer in between begins the count anew");
        breaker.was_silent(&"no answer");
        assert!(matches!(breaker.look(), Passage::Shut(_)));
        pause().await;
        breaker.was_silent(&"no answer");
        assert!(matches!(breaker.look(), Passage::Shut(_)), "once is enough while it is down");
    }

    #[tokio::test(start_paused = true)]
    async fn batches_that_fail_together_are_one_failure() {
        let breaker = breaker();
        breaker.went_down(&"refused");
        let Passage::Shut(first) = breaker.look() else { panic!("it is down") };
        for _ in 0..10 {
            breaker.went_down(&"refused");
        }
        assert_eq!(breaker.look(), Passage::Shut(first));
    }
}
