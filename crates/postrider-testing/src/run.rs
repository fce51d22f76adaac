//! Running a worker, a relay, a consumer or a saga runner through virtual time.

use crate::{Fault, TestRunner, TestStore, assert::Assert, format};
use postrider_core::Error;
use postrider_engine::{
    Context, Failure, Report, Worker,
    worker::fault_injection::{FaultInjector, HandlerFault},
};
use std::sync::Arc;

/// After this many moves of the clock, a message is assumed to keep itself alive.
const MAX_MOVES: usize = 1_000;

impl TestStore {
    /// Injects the planned faults into the deliveries of `worker`.
    ///
    /// [`run_until_idle`](Self::run_until_idle) and [`run_until_settled`](Self::run_until_settled) do this themselves; call it
    /// before you start a worker in another way. A worker takes its faults from one store only.
    pub fn inject_faults(&self, worker: &Worker) {
        worker.inject_faults(Arc::new(StoreFaults(self.clone())));
        self.lock().has_injection = true;
    }

    /// Handles the messages that are due now, and returns when none is due. The clock does not move: timers and retries that
    /// are due later keep waiting. Faults are injected into the deliveries of workers.
    ///
    /// # Errors
    /// When a claim fails because of a planned outage.
    pub async fn run_until_idle(&self, runner: &impl TestRunner) -> Result<Report, Error> {
        runner.inject_faults(self);
        runner.run_until_idle().await
    }

    /// Handles every message: whenever none is due, moves the clock to the next due time, until no message waits. The test does
    /// not sleep.
    ///
    /// Planned outages pass by themselves; the report leaves out the counts of a run whose claim failed.
    ///
    /// # Errors
    /// When messages still wait after 1,000 moves of the clock: a handler snoozes or stages its own message without end.
    pub async fn run_until_settled(&self, runner: &impl TestRunner) -> Result<Report, Error> {
        let mut total = Report::default();
        let mut moves = 0;
        while moves < MAX_MOVES {
            match self.run_until_idle(runner).await {
                Ok(report) => total = total + report,
                // Only planned outages fail, and their number is limited.
                Err(Error::Unavailable(_)) => continue,
                Err(error) => return Err(error),
            }
            if self.advance_to_next_due().await?.is_none() {
                return Ok(total);
            }
            moves += 1;
        }
        let left = format::list("still waiting", &self.waiting().await);
        Err(Error::Other(
            format!("the clock was moved {MAX_MOVES} times, and messages still wait\n{left}").into(),
        ))
    }
}

/// The faults that a store has planned, in the form that its workers ask for.
struct StoreFaults(TestStore);

impl FaultInjector for StoreFaults {
    fn fault_for(&self, context: &Context) -> Option<HandlerFault> {
        let fault = self.0.lock().claims.fault_of(context.id())?;
        match fault {
            Fault::Fail => {
                Some(HandlerFault::Fail(Failure::retry("failure injected by the test").named("Fault")))
            }
            Fault::Reject => {
                Some(HandlerFault::Fail(Failure::reject("rejection injected by the test").named("Fault")))
            }
            Fault::Panic => Some(HandlerFault::Panic),
            Fault::TimeOut => Some(HandlerFault::TimeOut),
            Fault::LoseLease => None,
        }
    }
}
