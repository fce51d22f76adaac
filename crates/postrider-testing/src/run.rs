//! Running a worker through virtual time.

use crate::{Fault, TestStore, assert::Assert, shown};
use postrider_core::Error;
use postrider_engine::{
    Context, Failure, Tally, Worker,
    worker::rehearsal::{Rehearsal, Strike},
};
use std::sync::Arc;

/// After so many moves of the clock, something keeps itself alive.
const MOST_MOVES: usize = 1_000;

impl TestStore {
    /// Lets the planned faults strike the deliveries of `worker`. The two ways to run it below do so by themselves; call it
    /// before you start a worker in another way. A worker knows the faults of one store only.
    pub fn rehearse(&self, worker: &Worker) {
        worker.rehearse(Arc::new(Strikes(self.clone())));
        self.lock().is_rehearsed = true;
    }

    /// Handles what is due now, and stops when nothing is. The clock stands still: timers and retries go on waiting.
    ///
    /// # Errors
    /// When the store was made to fail a claim.
    pub async fn run_until_idle(&self, worker: &Worker) -> Result<Tally, Error> {
        self.rehearse(worker);
        worker.run_until_idle().await
    }

    /// Handles everything there is: whenever nothing is due, the clock moves to when something is, until nothing waits for its
    /// time. Nobody sleeps meanwhile. Outages that were asked for are sat out; what a run counted before its claim failed is
    /// not in the tally.
    ///
    /// # Errors
    /// When things are not settled after the clock was moved a thousand times: something snoozes, or stages itself, for ever.
    pub async fn run_until_settled(&self, worker: &Worker) -> Result<Tally, Error> {
        let mut total = Tally::default();
        let mut moves = 0;
        while moves < MOST_MOVES {
            match self.run_until_idle(worker).await {
                Ok(tally) => total = total + tally,
                // Only what was asked for, so it passes.
                Err(Error::Unavailable(_)) => continue,
                Err(error) => return Err(error),
            }
            if self.advance_to_next_due().await?.is_none() {
                return Ok(total);
            }
            moves += 1;
        }
        let left = shown::list("still waiting", &self.waiting().await);
        Err(Error::Other(
            format!("the clock was moved {MOST_MOVES} times, and there is more to do\n{left}").into(),
        ))
    }
}

/// The faults of a store, as its workers ask for them.
struct Strikes(TestStore);

impl Rehearsal for Strikes {
    fn strike(&self, context: &Context) -> Option<Strike> {
        let fault = self.0.lock().claims.fault_of(context.id())?;
        match fault {
            Fault::Fail => {
                Some(Strike::Fail(Failure::retry("a failure that a test asked for").named("Fault")))
            }
            Fault::Reject => {
                Some(Strike::Fail(Failure::reject("a refusal that a test asked for").named("Fault")))
            }
            Fault::Panic => Some(Strike::Panic),
            Fault::TimeOut => Some(Strike::TimeOut),
            Fault::LoseLease => None,
        }
    }
}
