//! One queue, several destinations.
//!
//! Each destination accepts, refuses and fails on its own, so what one of them still owes must not hold up the others, nor be sent
//! to them again. A message is sent to all of them at once; those that did not accept it get a copy in a **queue of their own**,
//! staged in the step that settles the message. From there on each is a route with one destination: its own retries, its own dead
//! letters, its own breaker.
//!
//! Where order is kept, every message takes that way, to every destination: sent at once, the next message of a key could overtake
//! one that waits for a destination in its own queue.

use super::{
    breaker::Breaker,
    deliver::{Leg, Unsent, relaying, undeclared},
};
use crate::{
    carry::{Deliver, Delivery, Gate, Outcome, Passage},
    judge::claimed_too_often,
};
use futures_util::{
    FutureExt,
    future::{BoxFuture, join_all, select_all},
};
use postrider_core::{Message, Settlement};
use std::{sync::Arc, time::Duration};

/// Sends the messages of a queue to several destinations.
#[derive(Debug)]
pub(super) struct FanOut {
    pub(super) legs: Vec<Arc<Leg>>,
    pub(super) source: Arc<str>,
    pub(super) max_deliveries: Option<u32>,
    pub(super) is_ordered: bool,
}

impl Deliver for FanOut {
    fn deliver<'d>(&'d self, delivery: &'d Arc<Delivery>) -> BoxFuture<'d, Outcome> {
        relaying(self.settle(delivery), delivery, "several")
    }

    fn commits(&self, _: &Delivery) -> bool {
        false
    }
}

impl FanOut {
    async fn settle(&self, delivery: &Arc<Delivery>) -> Settlement {
        let unsendable = undeclared(Some(self.is_ordered), delivery);
        if let Some(settlement) = unsendable.or_else(|| claimed_too_often(self.max_deliveries, delivery)) {
            return settlement;
        }
        if self.is_ordered {
            return self.forward(delivery, self.legs.iter());
        }
        let sending = self.legs.iter().map(|leg| leg.send(delivery, &self.source));
        let answers = join_all(sending).await;
        if answers.iter().all(|answer| matches!(answer, Err(Unsent::Down))) {
            // Nobody has it: it waits where it is.
            return Settlement::Release;
        }
        let owed = self.legs.iter().zip(&answers).filter(|(_, answer)| answer.is_err());
        self.forward(delivery, owed.map(|(leg, _)| leg))
    }

    /// Puts the message into the queues of these destinations.
    fn forward<'l>(&self, delivery: &Delivery, legs: impl Iterator<Item = &'l Arc<Leg>>) -> Settlement {
        let message = &delivery.claimed.message;
        let messages: Arc<[Message]> = legs.map(|leg| message.redirected(leg.queue.clone())).collect();
        if messages.is_empty() { Settlement::Done } else { Settlement::Forward { messages } }
    }
}

/// Open as long as anything gets through to any of them.
#[derive(Debug)]
pub(super) struct AnyOpen(pub(super) Vec<Arc<Breaker>>);

impl Gate for AnyOpen {
    fn look(&self) -> Passage {
        let mut shut = Duration::MAX;
        for breaker in &self.0 {
            match breaker.look() {
                Passage::Shut(wait) => shut = shut.min(wait),
                passage => return passage,
            }
        }
        Passage::Shut(shut)
    }

    fn put_back(&self) {
        self.0.iter().for_each(|breaker| breaker.put_back());
    }

    fn changed(&self) -> BoxFuture<'_, ()> {
        Box::pin(select_all(self.0.iter().map(|breaker| breaker.changed())).map(|_| ()))
    }
}
