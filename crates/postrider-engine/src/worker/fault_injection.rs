//! Fault injection, for tests of handlers. With the feature `testing` only.
//!
//! A fault replaces the handler's run: the retry strategy, the settlement and the dead letter that follow are the real ones.

use super::{Context, Failure, Next, Worker};
use std::{
    fmt,
    sync::{Arc, OnceLock},
};

/// Decides which deliveries fail.
pub trait FaultInjector: Send + Sync + 'static {
    /// The fault that replaces the handler's run, if any.
    fn fault_for(&self, context: &Context) -> Option<HandlerFault>;
}

/// A fault that replaces a handler's run.
#[derive(Debug)]
pub enum HandlerFault {
    /// The handler fails with this failure.
    Fail(Failure),
    /// The handler panics.
    Panic,
    /// The handler times out, without anybody waiting for it.
    TimeOut,
}

/// The fault injector of a worker, if it has one.
#[derive(Clone, Default)]
pub(super) struct FaultSlot(Arc<OnceLock<Arc<dyn FaultInjector>>>);

impl FaultSlot {
    #[expect(clippy::panic, reason = "the injected panic is caught like a handler's own")]
    pub(super) fn fault_for(&self, context: &Context) -> Option<Failure> {
        match self.0.get()?.fault_for(context)? {
            HandlerFault::Fail(failure) => Some(failure),
            HandlerFault::Panic => panic!("injected panic"),
            HandlerFault::TimeOut => Some(Failure::of_kind(Next::Retry, "Timeout", "injected timeout")),
        }
    }
}

impl fmt::Debug for FaultSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FaultSlot").field("is_set", &self.0.get().is_some()).finish()
    }
}

impl Worker {
    /// Injects faults into deliveries of this worker and its clones. The first injector stays.
    pub fn inject_faults(&self, injector: Arc<dyn FaultInjector>) {
        let _ = self.fault_slot.0.set(injector);
    }
}
