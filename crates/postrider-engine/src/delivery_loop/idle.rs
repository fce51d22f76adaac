//! Waiting while a queue is empty.
//!
//! A claimer that finds nothing polls again soon, for a few hundred milliseconds. Then it registers as an idle worker, so that
//! producers send a notification, **polls once more**, and then polls at intervals that grow to the maximum poll interval. The
//! polls cover producers that read "no idle worker" before the registration and commit after the poll. It deregisters with the
//! first message that it finds.
//!
//! Without a listener there is nothing to register: it only polls.

use super::Subscription;
use postrider_core::{
    Error,
    notifier::{IdleWorker, Notifier},
};
use std::{sync::Arc, time::Duration};
use tokio::time::Instant;
use uuid::Uuid;

/// Duration of busy polling before a claimer registers as idle.
const BUSY_POLL_FOR: Duration = Duration::from_millis(300);
/// The first poll interval after registering.
const FIRST_IDLE_INTERVAL: Duration = Duration::from_millis(50);
/// Number of polls at one interval before it doubles.
const POLLS_PER_INTERVAL: u32 = 4;
/// Lifetime of a registration without renewal: the cost for producers when an idle worker dies.
const REGISTRATION_TTL: Duration = Duration::from_secs(15);

#[derive(Debug)]
pub(super) struct IdleState {
    subscription: Arc<Subscription>,
    notifier: Option<Arc<dyn Notifier>>,
    idle: IdleWorker,
    since: Option<Instant>,
    polls: u32,
    registered_at: Option<Instant>,
}

/// The next action after an empty claim.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum IdleAction {
    /// Claim again at once.
    ClaimAgain,
    /// Wait for a notification, at most this long.
    Wait(Duration),
}

impl IdleState {
    pub(super) fn new(subscription: Arc<Subscription>, notifier: Option<Arc<dyn Notifier>>) -> Self {
        let idle = IdleWorker { worker: Uuid::new_v4(), queues: vec![subscription.queue.clone()] };
        Self { subscription, notifier, idle, since: None, polls: 0, registered_at: None }
    }

    /// Call it after an empty claim. `is_listening` says whether notifications arrive.
    pub(super) async fn next_action(&mut self, is_listening: bool) -> Result<IdleAction, Error> {
        let now = Instant::now();
        let since = *self.since.get_or_insert(now);
        let (shortest, longest) = (self.subscription.poll_min, self.subscription.poll_max);
        match (&self.notifier, self.registered_at) {
            (Some(notifier), None) if is_listening && now - since >= BUSY_POLL_FOR => {
                notifier.register_idle(&self.idle, REGISTRATION_TTL).await?;
                self.registered_at = Some(now);
                self.polls = 0;
                return Ok(IdleAction::ClaimAgain);
            }
            (Some(notifier), Some(at)) if is_listening && now - at >= REGISTRATION_TTL / 3 => {
                notifier.register_idle(&self.idle, REGISTRATION_TTL).await?;
                self.registered_at = Some(now);
            }
            _ => {}
        }
        self.polls += 1;
        let wait = if self.registered_at.is_some() {
            doubled(FIRST_IDLE_INTERVAL.max(shortest), (self.polls - 1) / POLLS_PER_INTERVAL, longest)
        } else if is_listening {
            shortest
        } else {
            doubled(shortest, (self.polls - 1) / POLLS_PER_INTERVAL, longest)
        };
        Ok(IdleAction::Wait(wait.mul_f64(rand::random_range(0.8..1.2)).min(longest)))
    }

    /// Call it after a non-empty claim and at the end: producers need not notify any more.
    pub(super) async fn deregister_idle(&mut self) -> Result<(), Error> {
        self.since = None;
        self.polls = 0;
        if let (Some(notifier), Some(_)) = (&self.notifier, self.registered_at.take()) {
            notifier.deregister_idle(&self.idle).await?;
        }
        Ok(())
    }
}

fn doubled(first: Duration, doublings: u32, longest: Duration) -> Duration {
    first.saturating_mul(2_u32.saturating_pow(doublings.min(30))).min(longest)
}
