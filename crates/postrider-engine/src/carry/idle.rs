//! Waiting while there is nothing to do.
//!
//! A fetcher that finds nothing looks again soon, for a few hundred milliseconds. Then it lies down: it announces that it
//! sleeps, so that producers signal, **looks once more**, and looks again after pauses that grow to the longest wait. The
//! pauses cover producers that read "nobody sleeps" before the announcement and commit after the look. It rises with the
//! first message that it finds.
//!
//! Without a listener there is nothing to announce: it only polls.

use super::Subscription;
use postrider_core::{
    Error,
    wake::{Sleeper, Wake},
};
use std::{sync::Arc, time::Duration};
use tokio::time::Instant;
use uuid::Uuid;

/// How long a fetcher goes on looking before it lies down.
const AWAKE_FOR: Duration = Duration::from_millis(300);
/// The first pause after lying down.
const FIRST_NAP: Duration = Duration::from_millis(50);
/// How many pauses are of one length.
const NAPS: u32 = 4;
/// How long an announcement lasts if nobody renews it: what a worker that died asleep costs producers.
const LASTING: Duration = Duration::from_secs(15);

#[derive(Debug)]
pub(super) struct Idle {
    subscription: Arc<Subscription>,
    wake: Option<Arc<dyn Wake>>,
    sleeper: Sleeper,
    since: Option<Instant>,
    looks: u32,
    lay_down_at: Option<Instant>,
}

/// What to do after having found nothing.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Rest {
    /// Look again at once.
    LookAgain,
    /// Wait for a signal, at most so long.
    Wait(Duration),
}

impl Idle {
    pub(super) fn new(subscription: Arc<Subscription>, wake: Option<Arc<dyn Wake>>) -> Self {
        let sleeper = Sleeper { worker: Uuid::new_v4(), queues: vec![subscription.queue.clone()] };
        Self { subscription, wake, sleeper, since: None, looks: 0, lay_down_at: None }
    }

    /// Nothing was found. `is_heard` says whether somebody listens for signals.
    pub(super) async fn rest(&mut self, is_heard: bool) -> Result<Rest, Error> {
        let now = Instant::now();
        let since = *self.since.get_or_insert(now);
        let (shortest, longest) = (self.subscription.shortest_wait, self.subscription.longest_wait);
        match (&self.wake, self.lay_down_at) {
            (Some(wake), None) if is_heard && now - since >= AWAKE_FOR => {
                wake.lie_down(&self.sleeper, LASTING).await?;
                self.lay_down_at = Some(now);
                self.looks = 0;
                return Ok(Rest::LookAgain);
            }
            (Some(wake), Some(at)) if is_heard && now - at >= LASTING / 3 => {
                wake.lie_down(&self.sleeper, LASTING).await?;
                self.lay_down_at = Some(now);
            }
            _ => {}
        }
        self.looks += 1;
        let wait = if self.lay_down_at.is_some() {
            grown(FIRST_NAP.max(shortest), (self.looks - 1) / NAPS, longest)
        } else if is_heard {
            shortest
        } else {
            grown(shortest, (self.looks - 1) / NAPS, longest)
        };
        Ok(Rest::Wait(wait.mul_f64(rand::random_range(0.8..1.2)).min(longest)))
    }

    /// Something was found, or it is over: producers need not signal any more.
    pub(super) async fn rise(&mut self) -> Result<(), Error> {
        self.since = None;
        self.looks = 0;
        if let (Some(wake), Some(_)) = (&self.wake, self.lay_down_at.take()) {
            wake.rise(&self.sleeper).await?;
        }
        Ok(())
    }
}

fn grown(first: Duration, doublings: u32, longest: Duration) -> Duration {
    first.saturating_mul(2_u32.saturating_pow(doublings.min(30))).min(longest)
}
