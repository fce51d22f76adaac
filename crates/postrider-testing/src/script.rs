//! What is to go wrong, and when.

use postrider_core::{Error, Event, Invalid, Message};

/// What happens to one delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// It fails before its handler runs, and is tried again as the queue's strategy says.
    Fail,
    /// It is refused before its handler runs, and becomes a dead letter.
    Reject,
    /// It panics in the place of its handler.
    Panic,
    /// It counts as having taken too long. Nobody waits for that.
    TimeOut,
    /// Its handler runs, but its lease is lost before that is settled: what a worker that died or stalled leaves behind. The
    /// message comes again when the lease has lapsed by the store's clock. A handler's transaction is undone.
    LoseLease,
}

/// What is asked of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Call {
    /// Staging messages and cancelling timers.
    Stage,
    /// Admitting messages that were received.
    Admit,
    /// Claiming messages.
    Claim,
    /// Renewing leases.
    Renew,
    /// Settling deliveries, in a handler's transaction, too.
    Settle,
    /// Beginning a handler's transaction.
    Begin,
    /// Committing a handler's transaction: it is undone.
    Commit,
}

/// Everything that is still to go wrong.
#[derive(Debug, Default)]
pub(crate) struct Script {
    plans: Vec<Plan>,
    /// How many more calls fail, of one kind or of any.
    outages: Vec<(Option<Call>, u32)>,
}

#[derive(Debug)]
struct Plan {
    /// Of events of this type only.
    of: Option<&'static str>,
    /// Strikes when it has counted down to nothing.
    left: u32,
    fault: Fault,
}

impl Script {
    pub(crate) fn plan_for<E: Event>(&mut self, nth: u32, fault: Fault) {
        self.plan(Some(E::TYPE), nth, fault);
    }

    pub(crate) fn plan(&mut self, of: Option<&'static str>, nth: u32, fault: Fault) {
        self.plans.push(Plan { of, left: nth.max(1), fault });
    }

    pub(crate) fn fail(&mut self, call: Option<Call>, times: u32) {
        self.outages.push((call, times));
    }

    /// Counts a delivery of `message`, and says what strikes it.
    pub(crate) fn strike(&mut self, message: &Message) -> Option<Fault> {
        let event_type = message.event_type().map(postrider_core::EventType::as_str);
        let is_meant = |plan: &Plan| plan.of.is_none() || plan.of == event_type;
        for plan in self.plans.iter_mut().filter(|plan| is_meant(plan)) {
            plan.left = plan.left.saturating_sub(1);
        }
        let ripe = self.plans.iter().position(|plan| plan.left == 0 && is_meant(plan))?;
        Some(self.plans.remove(ripe).fault)
    }

    /// Whether the call works this time.
    pub(crate) fn check(&mut self, call: Call) -> Result<(), Error> {
        let applies = |(of, left): &&mut (Option<Call>, u32)| *left > 0 && of.is_none_or(|of| of == call);
        let Some((_, left)) = self.outages.iter_mut().find(applies) else { return Ok(()) };
        *left -= 1;
        Err(Error::Unavailable("a test asked for it".into()))
    }

    /// Whether some plan needs a worker that knows of it.
    pub(crate) fn check_rehearsed(&self) -> Result<(), Invalid> {
        if self.plans.iter().all(|plan| plan.fault == Fault::LoseLease) {
            return Ok(());
        }
        let rule = "does not know of the faults that are planned: run it with the store's `run_until_idle` or \
                    `run_until_settled`, or tell it with `rehearse` before it starts";
        Err(Invalid::rule("worker", rule))
    }
}
