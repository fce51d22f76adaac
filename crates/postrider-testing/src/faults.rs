//! The faults that a test has planned: of deliveries, and of calls to the store.

use postrider_core::{Error, Event, Invalid, Message};

/// A fault that is injected into one delivery; plan it with [`TestStore::fault_on`](crate::TestStore::fault_on).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// The delivery fails before its handler runs, and is retried by the queue's retry strategy.
    Fail,
    /// The delivery is rejected before its handler runs, and the message becomes a dead letter.
    Reject,
    /// The delivery panics in place of its handler.
    Panic,
    /// The delivery exceeds its handler timeout. The test does not wait for the timeout.
    TimeOut,
    /// The handler runs, but its lease is lost before the delivery is settled, as after a crash or a stall of the worker. The
    /// message is redelivered when the lease has expired by the store's clock. A handler's transaction is rolled back.
    LoseLease,
}

/// A kind of call to a store; make it fail with [`TestStore::fail`](crate::TestStore::fail).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreCall {
    /// Staging messages and cancelling timers.
    Stage,
    /// Admitting received messages to the inbox.
    Admit,
    /// Claiming messages.
    Claim,
    /// Renewing leases.
    Renew,
    /// Settling deliveries, also in a handler's transaction.
    Settle,
    /// Beginning a handler's transaction.
    Begin,
    /// Committing a handler's transaction: the transaction is rolled back.
    Commit,
}

/// Every fault that is planned and has not happened yet.
#[derive(Debug, Default)]
pub(crate) struct FaultPlan {
    deliveries: Vec<DeliveryFault>,
    /// The kind of call, or any kind, and how many more of these calls fail.
    outages: Vec<(Option<StoreCall>, u32)>,
}

#[derive(Debug)]
struct DeliveryFault {
    /// Counts deliveries of this event type only.
    event_type: Option<&'static str>,
    /// Deliveries until the fault happens, the faulty one included.
    left: u32,
    fault: Fault,
}

impl FaultPlan {
    pub(crate) fn add_for<E: Event>(&mut self, nth: u32, fault: Fault) {
        self.add(Some(E::TYPE), nth, fault);
    }

    pub(crate) fn add(&mut self, event_type: Option<&'static str>, nth: u32, fault: Fault) {
        self.deliveries.push(DeliveryFault { event_type, left: nth.max(1), fault });
    }

    pub(crate) fn fail(&mut self, call: Option<StoreCall>, times: u32) {
        self.outages.push((call, times));
    }

    /// Counts a delivery of `message`, and returns the fault to inject into it.
    pub(crate) fn count_delivery(&mut self, message: &Message) -> Option<Fault> {
        let event_type = message.event_type().map(postrider_core::EventType::as_str);
        let applies =
            |planned: &DeliveryFault| planned.event_type.is_none() || planned.event_type == event_type;
        for planned in self.deliveries.iter_mut().filter(|planned| applies(planned)) {
            planned.left = planned.left.saturating_sub(1);
        }
        let due = self.deliveries.iter().position(|planned| planned.left == 0 && applies(planned))?;
        Some(self.deliveries.remove(due).fault)
    }

    /// Counts a call, and fails if an outage is planned for it.
    pub(crate) fn check_call(&mut self, call: StoreCall) -> Result<(), Error> {
        let applies =
            |(of, left): &&mut (Option<StoreCall>, u32)| *left > 0 && of.is_none_or(|of| of == call);
        let Some((_, left)) = self.outages.iter_mut().find(applies) else { return Ok(()) };
        *left -= 1;
        Err(Error::Unavailable("outage injected by the test".into()))
    }

    /// Fails if some planned fault needs a worker with fault injection.
    pub(crate) fn check_injectable(&self) -> Result<(), Invalid> {
        if self.deliveries.iter().all(|planned| planned.fault == Fault::LoseLease) {
            return Ok(());
        }
        let rule = "has no fault injection, but faults are planned: run it with the store's `run_until_idle` or \
                    `run_until_settled`, or call `inject_faults` before it starts";
        Err(Invalid::rule("worker", rule))
    }
}
