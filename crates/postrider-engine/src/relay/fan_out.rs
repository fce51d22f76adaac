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
    deliver::{Leg, Spans, relaying, undeclared},
};
use crate::{
    carry::{Deliver, Delivery, Gate, Outcome, Passage, Tell, Together},
    judge::claimed_too_often,
};
use futures_util::{
    FutureExt,
    future::{BoxFuture, join_all, select_all},
};
use postrider_core::{Error, Message, PublishError, Settlement, Store};
use std::{sync::Arc, time::Duration};
use tokio::task::coop::consume_budget;

/// What spans and logs call several destinations.
const SEVERAL: &str = "several";

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
        let settling = async move {
            let mut settled = self.settle(std::slice::from_ref(delivery)).await;
            settled.pop().unwrap_or(Settlement::Release)
        };
        relaying(settling, delivery, SEVERAL)
    }

    fn commits(&self, _: &Delivery) -> bool {
        false
    }

    fn leaves(&self) -> bool {
        false
    }

    fn together(&self) -> Option<&dyn Together> {
        Some(self)
    }
}

impl Together for FanOut {
    fn most(&self) -> usize {
        self.legs.iter().map(|leg| leg.post.capacity.batch).max().unwrap_or(1)
    }

    fn deliver_all<'d>(&'d self, deliveries: &'d [Arc<Delivery>], tell: &'d Tell<'d>) -> BoxFuture<'d, ()> {
        Box::pin(async move {
            let _spans = Spans::begin(deliveries, SEVERAL);
            tell(self.settle(deliveries).await.into_iter().enumerate().collect());
        })
    }
}

/// What a destination has said to a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Said {
    /// It has it, or is not meant to.
    Yes,
    No,
    /// Nothing gets through.
    Down,
}

impl FanOut {
    /// How each of them ends.
    async fn settle(&self, deliveries: &[Arc<Delivery>]) -> Vec<Settlement> {
        let unsendable: Vec<Option<Settlement>> = deliveries.iter().map(|one| self.unsendable(one)).collect();
        let sendable: Vec<(usize, &Arc<Delivery>)> =
            deliveries.iter().enumerate().filter(|(place, _)| unsendable[*place].is_none()).collect();
        let answers = join_all(self.legs.iter().map(|leg| self.send(leg, &sendable, deliveries.len()))).await;
        let settle = |(place, settlement): (usize, Option<Settlement>)| {
            settlement.unwrap_or_else(|| {
                let said = || self.legs.iter().zip(&answers).map(|(leg, answers)| (leg, answers[place]));
                if said().all(|(_, said)| said == Said::Down) {
                    // Nobody has it: it waits where it is.
                    return Settlement::Release;
                }
                let owed = said().filter(|(_, said)| *said != Said::Yes);
                self.forward(&deliveries[place], owed.map(|(leg, _)| leg))
            })
        };
        unsendable.into_iter().enumerate().map(settle).collect()
    }

    /// How a message ends that is not sent from here.
    fn unsendable(&self, delivery: &Delivery) -> Option<Settlement> {
        undeclared(Some(self.is_ordered), delivery)
            .or_else(|| claimed_too_often(self.max_deliveries, delivery))
            .or_else(|| self.is_ordered.then(|| self.forward(delivery, self.legs.iter())))
    }

    /// Sends to one destination, and answers by place.
    async fn send(&self, leg: &Arc<Leg>, sendable: &[(usize, &Arc<Delivery>)], places: usize) -> Vec<Said> {
        let mut said = vec![Said::No; places];
        let mut outgoing = Vec::with_capacity(sendable.len());
        for (place, delivery) in sendable {
            match leg.written(delivery, &self.source) {
                Ok(Some(written)) => outgoing.push((*place, written)),
                Ok(None) => said[*place] = Said::Yes,
                // From its own queue it fails again, and is judged there.
                Err(_) => {}
            }
            consume_budget().await;
        }
        let mut answers = leg.post.send_all(outgoing);
        while let Some(answered) = answers.recv().await {
            for (place, answer) in answered {
                said[place] = match answer {
                    Ok(_) => Said::Yes,
                    Err(PublishError::Down { .. }) => Said::Down,
                    Err(_) => Said::No,
                };
            }
        }
        said
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
    fn prepare<'g>(&'g self, store: &'g dyn Store) -> BoxFuture<'g, Result<(), Error>> {
        // All destinations of a relay share what they know.
        match self.0.first() {
            Some(breaker) => breaker.prepare(store),
            None => Box::pin(async { Ok(()) }),
        }
    }

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
