//! Executors: each delivers one unit of work at a time.

use super::{
    Delivery, Outcome,
    delivery::WorkUnit,
    dispatcher::Dispatcher,
    idle_detector::IdleDetector,
    leases::{LeaseRegistry, log_losses},
    metrics::Phase,
    settle_buffer::{PendingSettlement, SettleBuffer},
    store_outage::StoreOutage,
};
use postrider_core::{Settlement, Store};
use std::{
    sync::{Arc, atomic::Ordering::SeqCst},
    time::Duration,
};
use tokio::{task::coop::consume_budget, time::Instant};

#[derive(Debug, Clone)]
pub(super) struct Executor {
    pub(super) store: Arc<dyn Store>,
    pub(super) store_outage: Arc<StoreOutage>,
    pub(super) dispatcher: Arc<Dispatcher>,
    pub(super) settle_buffer: Arc<SettleBuffer>,
    pub(super) leases: Arc<LeaseRegistry>,
    pub(super) idle_detector: Option<Arc<IdleDetector>>,
}

impl Executor {
    pub(super) async fn run(self) {
        while let Some(assignment) = self.dispatcher.next().await {
            let isolated = match assignment.slot.is_isolated {
                true => assignment.unit.deliveries().to_vec(),
                false => Vec::new(),
            };
            match assignment.unit {
                WorkUnit::One(delivery) => {
                    self.buffer(self.deliver(&delivery).await);
                }
                WorkUnit::Turn(turn) => self.deliver_turn(&turn).await,
                WorkUnit::Batch(deliveries) => self.deliver_batch(deliveries).await,
            }
            // The next suspect may kill the process, which must not count against this one.
            for delivery in isolated.iter().filter(|delivery| delivery.is_buffered.load(SeqCst)) {
                self.settle_buffer.wait_until_settled(delivery).await;
            }
            if self.dispatcher.finish(assignment.slot) {
                self.settle_buffer.flush_soon();
            }
            // A handler that never waits must not keep this thread from other tasks.
            consume_budget().await;
        }
    }

    /// Delivers the messages of a key in their order. The first failure ends the turn, and so does a stop: the rest is
    /// released with it, and is redelivered in its order.
    async fn deliver_turn(&self, turn: &[Arc<Delivery>]) {
        for (index, delivery) in turn.iter().enumerate() {
            let rest = || turn[index + 1..].iter().map(unstarted);
            if index > 0 && self.dispatcher.is_closed() {
                return self.buffer(std::iter::once(unstarted(delivery)).chain(rest()));
            }
            if index > 0 && delivery.subscription.deliver.settles_itself(delivery) {
                // It settles itself and must not overtake a settlement that is still buffered.
                self.settle_buffer.wait_until_settled(&turn[index - 1]).await;
            }
            match self.deliver(delivery).await {
                Some(entry) if entry.settlement.is_success() => self.buffer([entry]),
                Some(entry) => return self.buffer(std::iter::once(entry).chain(rest())),
                None if delivery.is_lost() => return self.buffer(rest()),
                None => {}
            }
        }
    }

    /// Delivers one message. `None` when there is nothing left to settle.
    async fn deliver(&self, delivery: &Arc<Delivery>) -> Option<PendingSettlement> {
        if delivery.is_lost() {
            // Its delivery never started; it is redelivered, here or elsewhere.
            return Some(unstarted(delivery));
        }
        let metrics = &delivery.subscription.metrics;
        metrics.record_dispatched(1);
        delivery.started.store(true, SeqCst);
        let started_at = Instant::now();
        let outcome = match self.count_isolated(delivery).await {
            None => delivery.subscription.deliver.deliver(delivery).await,
            Some(outcome) => outcome,
        };
        let ran_for = started_at.elapsed();
        self.settle(delivery, outcome, ran_for)
    }

    /// Counts the delivery of a suspect before it begins. Returns the outcome when it must not begin.
    async fn count_isolated(&self, delivery: &Delivery) -> Option<Outcome> {
        if !delivery.is_suspect() {
            return None;
        }
        let claimed = &delivery.claimed;
        tracing::info!(
            name: "postrider.isolated",
            queue = %claimed.lease.queue(),
            message_id = %claimed.id(),
            deliveries = claimed.deliveries,
            isolated = claimed.isolated,
            "leases of a message expired {} times; delivering it alone in its queue", claimed.expired_leases()
        );
        match self.store.count_isolated(&claimed.lease).await {
            Ok(true) => {
                self.store_outage.resolved();
                None
            }
            Ok(false) => Some(Outcome::Lost),
            Err(error) => {
                self.store_outage.report("count an isolated delivery", &error);
                Some(Outcome::LeftToLease)
            }
        }
    }

    /// What is left to settle after a delivery, if anything.
    fn settle(
        &self,
        delivery: &Arc<Delivery>,
        outcome: Outcome,
        ran_for: Duration,
    ) -> Option<PendingSettlement> {
        let metrics = &delivery.subscription.metrics;
        match outcome {
            Outcome::Settle(settlement) => {
                Some(PendingSettlement { delivery: Arc::clone(delivery), settlement, ran_for: Some(ran_for) })
            }
            Outcome::Committed(settlement) => {
                if self.end(delivery) {
                    metrics.record_settled(&settlement, ran_for, delivery.age());
                }
                None
            }
            Outcome::Lost => {
                delivery.lose();
                if self.end(delivery) {
                    metrics.record_lost(Phase::Settle);
                    log_losses(std::slice::from_ref(delivery), "settle");
                }
                None
            }
            Outcome::LeftToLease => {
                delivery.lose();
                if self.end(delivery) {
                    metrics.record_lost(Phase::LeftToLease);
                }
                None
            }
        }
    }

    /// Delivers messages at once. Each is settled as soon as its outcome is known.
    async fn deliver_batch(&self, deliveries: Vec<Arc<Delivery>>) {
        let (lost, deliveries): (Vec<_>, Vec<_>) =
            deliveries.into_iter().partition(|delivery| delivery.is_lost());
        self.buffer(lost.iter().map(unstarted));
        let Some(subscription) = deliveries.first().map(|delivery| Arc::clone(&delivery.subscription)) else {
            return;
        };
        let Some(batch) = subscription.deliver.as_batch() else { return };
        subscription.metrics.record_dispatched(deliveries.len());
        deliveries.iter().for_each(|delivery| delivery.started.store(true, SeqCst));
        let started_at = Instant::now();
        // A suspect is a batch of its own.
        if let [delivery] = &deliveries[..]
            && let Some(outcome) = self.count_isolated(delivery).await
        {
            return self.buffer(self.settle(delivery, outcome, started_at.elapsed()));
        }
        let report = |settled: Vec<(usize, Settlement)>| {
            let ran_for = Some(started_at.elapsed());
            self.buffer(settled.into_iter().filter_map(|(index, settlement)| {
                let delivery = Arc::clone(deliveries.get(index)?);
                Some(PendingSettlement { delivery, settlement, ran_for })
            }));
        };
        batch.deliver_all(&deliveries, &report).await;
    }

    fn end(&self, delivery: &Arc<Delivery>) -> bool {
        let note_change = || self.idle_detector.iter().for_each(|idle_detector| idle_detector.note_change());
        // Before it leaves the in-flight set, since it may have staged a message; and after, since it may have been the
        // last.
        note_change();
        let is_first = self.leases.end(std::iter::once(delivery)).first().copied().unwrap_or(false);
        note_change();
        is_first
    }

    fn buffer(&self, entries: impl IntoIterator<Item = PendingSettlement>) {
        self.settle_buffer.push(entries, false);
    }
}

/// Releases a message whose delivery never started.
pub(super) fn unstarted(delivery: &Arc<Delivery>) -> PendingSettlement {
    PendingSettlement { delivery: Arc::clone(delivery), settlement: Settlement::Release, ran_for: None }
}

/// Releases a message, started or not; `None` if it must stay leased instead.
pub(super) fn interrupted(delivery: &Arc<Delivery>) -> Option<PendingSettlement> {
    let is_started = delivery.started.load(SeqCst);
    let keeps_lease = is_started && delivery.subscription.deliver.keeps_lease_when_cancelled();
    (!keeps_lease)
        .then(|| PendingSettlement { ran_for: is_started.then_some(Duration::ZERO), ..unstarted(delivery) })
}
