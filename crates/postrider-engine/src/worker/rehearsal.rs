//! Faults on demand, for tests of handlers. With the feature `testing` only.
//!
//! A fault strikes in the handler's place: the retry strategy, the settlement and the dead letter that follow are those of a
//! real one.

use super::{Context, Failure, Next, Worker};
use std::{
    fmt,
    sync::{Arc, OnceLock},
};

/// Says which deliveries are to fail.
pub trait Rehearsal: Send + Sync + 'static {
    /// What happens instead of the handler, if anything does.
    fn strike(&self, context: &Context) -> Option<Strike>;
}

/// What happens instead of a handler.
#[derive(Debug)]
pub enum Strike {
    /// It fails like this.
    Fail(Failure),
    /// It panics.
    Panic,
    /// It takes too long. Nobody waits for that.
    TimeOut,
}

/// The rehearsal of a worker, if it has one.
#[derive(Clone, Default)]
pub(super) struct Rehearsing(Arc<OnceLock<Arc<dyn Rehearsal>>>);

impl Rehearsing {
    #[expect(clippy::panic, reason = "it is asked to, and is caught like a handler's own")]
    pub(super) fn strike(&self, context: &Context) -> Option<Failure> {
        match self.0.get()?.strike(context)? {
            Strike::Fail(failure) => Some(failure),
            Strike::Panic => panic!("a panic that a test asked for"),
            Strike::TimeOut => {
                Some(Failure::of_kind(Next::Retry, "Timeout", "a timeout that a test asked for"))
            }
        }
    }
}

impl fmt::Debug for Rehearsing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rehearsing").field("is_set", &self.0.get().is_some()).finish()
    }
}

impl Worker {
    /// Lets `rehearsal` decide which deliveries of this worker and its clones fail. The first one that is given stays.
    pub fn rehearse(&self, rehearsal: Arc<dyn Rehearsal>) {
        let _ = self.rehearsing.0.set(rehearsal);
    }
}
