//! A transport that follows a script.

use async_trait::async_trait;
use postrider_core::{Capacity, Finding, Outgoing, PublishError, Receipt, Transport};
use std::{
    fmt,
    sync::{Arc, Mutex},
};
use tokio::sync::Semaphore;

/// Records the messages it accepts, and fails as its script says. Clones share everything.
#[derive(Clone)]
pub struct ScriptedTransport {
    capacity: Capacity,
    state: Arc<Mutex<State>>,
    /// Calls wait here until they are let through.
    gate: Arc<Semaphore>,
}

struct State {
    script: Script,
    calls: Vec<Vec<Outgoing>>,
    accepted: Vec<Outgoing>,
}

type Script = Arc<dyn Fn(&Outgoing) -> Step + Send + Sync>;

/// The result of publishing a message.
#[derive(Debug)]
pub enum Step {
    /// Accept it.
    Accept,
    /// Fail with this error.
    Fail(PublishError),
    /// Accept it, but never return from the call.
    AcceptSilently,
    /// Never return from the call.
    Hang,
    /// Panic in the call.
    Panic,
    /// Return no result for it, although the others have one.
    Skip,
}

impl Default for ScriptedTransport {
    fn default() -> Self {
        Self::new(Capacity::of(1_000))
    }
}

impl ScriptedTransport {
    /// Creates a transport that accepts everything, with this capacity.
    pub fn new(capacity: Capacity) -> Self {
        let state = State { script: Arc::new(|_| Step::Accept), calls: Vec::new(), accepted: Vec::new() };
        Self {
            capacity,
            state: Arc::new(Mutex::new(state)),
            gate: Arc::new(Semaphore::new(Semaphore::MAX_PERMITS)),
        }
    }

    /// Follows `script` from now on.
    pub fn set_script(&self, script: impl Fn(&Outgoing) -> Step + Send + Sync + 'static) {
        self.state.lock().unwrap().script = Arc::new(script);
    }

    /// Fails every message with this error from now on.
    pub fn fail_with(&self, error: impl Fn() -> PublishError + Send + Sync + 'static) {
        self.set_script(move |_| Step::Fail(error()));
    }

    /// Accepts everything from now on.
    pub fn accept_all(&self) {
        self.set_script(|_| Step::Accept);
    }

    /// The accepted messages, in that order.
    pub fn accepted(&self) -> Vec<Outgoing> {
        self.state.lock().unwrap().accepted.clone()
    }

    /// The published batches, call by call.
    pub fn calls(&self) -> Vec<Vec<Outgoing>> {
        self.state.lock().unwrap().calls.clone()
    }

    /// Makes calls wait from now on, until [`let_through`](Self::let_through).
    pub fn hold(&self) {
        self.gate.forget_permits(Semaphore::MAX_PERMITS);
    }

    /// Lets this many of the waiting calls continue.
    pub fn let_through(&self, calls: usize) {
        self.gate.add_permits(calls);
    }
}

impl fmt::Debug for ScriptedTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScriptedTransport").finish_non_exhaustive()
    }
}

#[async_trait]
impl Transport for ScriptedTransport {
    fn kind(&self) -> &'static str {
        "scripted"
    }

    fn capacity(&self) -> Capacity {
        self.capacity
    }

    async fn publish(&self, batch: &[Outgoing]) -> Vec<Result<Receipt, PublishError>> {
        let script = {
            let mut state = self.state.lock().unwrap();
            state.calls.push(batch.to_vec());
            Arc::clone(&state.script)
        };
        self.gate.acquire().await.unwrap().forget();
        let mut results = Vec::new();
        for outgoing in batch {
            let accept = || self.state.lock().unwrap().accepted.push(outgoing.clone());
            match script(outgoing) {
                Step::Accept => {
                    accept();
                    results.push(Ok(Receipt::new()));
                }
                Step::Fail(error) => results.push(Err(error)),
                Step::AcceptSilently => {
                    accept();
                    std::future::pending::<()>().await;
                }
                Step::Hang => std::future::pending::<()>().await,
                Step::Panic => panic!("as the script says"),
                Step::Skip => {}
            }
        }
        results
    }

    async fn check(&self, _: &[&str]) -> Result<Vec<Finding>, PublishError> {
        Ok(Vec::new())
    }

    async fn close(&self) {}
}
