//! Runners: each delivers one unit at a time.

use super::{
    Delivery, Outcome,
    delivery::Unit,
    desk::{Desk, Entry},
    hall::Hall,
    leases::{Leases, tell_losses},
    meter::Phase,
    running::Draining,
};
use postrider_core::Settlement;
use std::{
    sync::{Arc, atomic::Ordering::SeqCst},
    time::{Duration, SystemTime},
};
use tokio::{task::coop::consume_budget, time::Instant};

#[derive(Debug, Clone)]
pub(super) struct Runner {
    pub(super) hall: Arc<Hall>,
    pub(super) desk: Arc<Desk>,
    pub(super) leases: Arc<Leases>,
    pub(super) draining: Option<Arc<Draining>>,
}

impl Runner {
    pub(super) async fn run(self) {
        while let Some(taken) = self.hall.next().await {
            match taken.unit {
                Unit::One(delivery) => {
                    self.put(self.deliver(&delivery).await);
                }
                Unit::Turn(turn) => self.take_turn(&turn).await,
                Unit::Many(deliveries) => self.deliver_many(deliveries).await,
            }
            if self.hall.finish(taken.place) {
                self.desk.hurry();
            }
            // A handler that never waits must not keep this thread from everybody else.
            consume_budget().await;
        }
    }

    /// Delivers the messages of a key in their order. The first that does not succeed ends the turn, and so does a stop: the rest is
    /// released with it, and comes again in its order.
    async fn take_turn(&self, turn: &[Arc<Delivery>]) {
        for (index, delivery) in turn.iter().enumerate() {
            let rest = || turn[index + 1..].iter().map(untouched);
            if index > 0 && self.hall.is_closed() {
                return self.put(std::iter::once(untouched(delivery)).chain(rest()));
            }
            if index > 0 && delivery.subscription.deliver.commits(delivery) {
                // It ends its claim by itself, and must not overtake what is still to be settled.
                self.desk.ended(&turn[index - 1]).await;
            }
            match self.deliver(delivery).await {
                Some(entry) if entry.settlement.is_success() => self.put([entry]),
                Some(entry) => return self.put(std::iter::once(entry).chain(rest())),
                None if delivery.is_lost() => return self.put(rest()),
                None => {}
            }
        }
    }

    /// Delivers one message. `None` when there is nothing left to settle.
    async fn deliver(&self, delivery: &Arc<Delivery>) -> Option<Entry> {
        if delivery.is_lost() {
            // Nobody has begun with it, and it comes again: here or elsewhere.
            return Some(untouched(delivery));
        }
        let meter = &delivery.subscription.meter;
        meter.dispatched(1);
        delivery.begun.store(true, SeqCst);
        let started_at = Instant::now();
        let outcome = delivery.subscription.deliver.deliver(delivery).await;
        let ran_for = started_at.elapsed();
        match outcome {
            Outcome::Settle(settlement) => {
                Some(Entry { delivery: Arc::clone(delivery), settlement, ran_for: Some(ran_for) })
            }
            Outcome::Committed(settlement) => {
                if self.end(delivery) {
                    meter.settled(&settlement, ran_for, delivery.age(SystemTime::now()));
                }
                None
            }
            Outcome::Lost => {
                delivery.lose();
                if self.end(delivery) {
                    meter.lost(Phase::Settle);
                    tell_losses(std::slice::from_ref(delivery), "settle");
                }
                None
            }
            Outcome::Left => {
                delivery.lose();
                if self.end(delivery) {
                    meter.lost(Phase::Left);
                }
                None
            }
        }
    }

    /// Delivers messages at once. Each is settled as soon as its end is known.
    async fn deliver_many(&self, deliveries: Vec<Arc<Delivery>>) {
        let (lost, deliveries): (Vec<_>, Vec<_>) =
            deliveries.into_iter().partition(|delivery| delivery.is_lost());
        self.put(lost.iter().map(untouched));
        let Some(subscription) = deliveries.first().map(|delivery| Arc::clone(&delivery.subscription)) else {
            return;
        };
        let Some(together) = subscription.deliver.together() else { return };
        subscription.meter.dispatched(deliveries.len());
        deliveries.iter().for_each(|delivery| delivery.begun.store(true, SeqCst));
        let started_at = Instant::now();
        let tell = |told: Vec<(usize, Settlement)>| {
            let ran_for = Some(started_at.elapsed());
            self.put(told.into_iter().filter_map(|(place, settlement)| {
                let delivery = Arc::clone(deliveries.get(place)?);
                Some(Entry { delivery, settlement, ran_for })
            }));
        };
        together.deliver_all(&deliveries, &tell).await;
    }

    fn end(&self, delivery: &Arc<Delivery>) -> bool {
        let stir = || self.draining.iter().for_each(|draining| draining.stir());
        // Before it leaves our hands, since it may have staged something; and after, since it may have been the last.
        stir();
        let is_first = self.leases.end(std::iter::once(delivery)).first().copied().unwrap_or(false);
        stir();
        is_first
    }

    fn put(&self, entries: impl IntoIterator<Item = Entry>) {
        self.desk.put(entries, false);
    }
}

/// Handed back, as nobody has begun with it.
pub(super) fn untouched(delivery: &Arc<Delivery>) -> Entry {
    Entry { delivery: Arc::clone(delivery), settlement: Settlement::Release, ran_for: None }
}

/// Handed back, whether or not somebody had begun with it; nothing if it is better left to its lease.
pub(super) fn interrupted(delivery: &Arc<Delivery>) -> Option<Entry> {
    let is_begun = delivery.begun.load(SeqCst);
    let is_left = is_begun && delivery.subscription.deliver.leaves();
    (!is_left).then(|| Entry { ran_for: is_begun.then_some(Duration::ZERO), ..untouched(delivery) })
}
