//! A transport that does as it is told.

use async_trait::async_trait;
use postrider_core::{Capacity, Finding, Outgoing, PublishError, Receipt, Transport};
use std::{
    fmt,
    sync::{Arc, Mutex},
};
use tokio::sync::Semaphore;

/// Keeps what it accepts, and fails as its script says. Cheap to clone; clones share everything.
#[derive(Clone)]
pub struct ScriptedTransport {
    capacity: Capacity,
    state: Arc<Mutex<State>>,
    /// Calls wait here until they are let in.
    door: Arc<Semaphore>,
}

struct State {
    script: Script,
    calls: Vec<Vec<Outgoing>>,
    accepted: Vec<Outgoing>,
}

type Script = Arc<dyn Fn(&Outgoing) -> Step + Send + Sync>;

/// What becomes of a message.
#[derive(Debug)]
pub enum Step {
    /// Accepted.
    Accept,
    /// Failed like this.
    Fail(PublishError),
    /// Accepted, and told to nobody: the call never ends.
    AcceptSilently,
    /// The call never ends.
    Hang,
    /// The call panics.
    Panic,
    /// It has no answer, though the others have.
    Skip,
}

impl Default for ScriptedTransport {
    fn default() -> Self {
        Self::new(Capacity::of(1_000))
    }
}

impl ScriptedTransport {
    /// Accepts everything, so much at once.
    pub fn new(capacity: Capacity) -> Self {
        let state = State { script: Arc::new(|_| Step::Accept), calls: Vec::new(), accepted: Vec::new() };
        Self {
            capacity,
            state: Arc::new(Mutex::new(state)),
            door: Arc::new(Semaphore::new(Semaphore::MAX_PERMITS)),
        }
    }

    /// From now on it does as `script` says.
    pub fn does(&self, script: impl Fn(&Outgoing) -> Step + Send + Sync + 'static) {
        self.state.lock().unwrap().script = Arc::new(script);
    }

    /// From now on, every message fails like this.
    pub fn fails(&self, error: impl Fn() -> PublishError + Send + Sync + 'static) {
        self.does(move |_| Step::Fail(error()));
    }

    /// From now on it accepts everything.
    pub fn accepts(&self) {
        self.does(|_| Step::Accept);
    }

    /// What was accepted, in that order.
    pub fn accepted(&self) -> Vec<Outgoing> {
        self.state.lock().unwrap().accepted.clone()
    }

    /// What was sent, call by call.
    pub fn calls(&self) -> Vec<Vec<Outgoing>> {
        self.state.lock().unwrap().calls.clone()
    }

    /// Calls wait from now on; [`let_in`](Self::let_in) lets them go on.
    pub fn hold(&self) {
        self.door.forget_permits(Semaphore::MAX_PERMITS);
    }

    /// Lets so many of the calls that wait go on.
    pub fn let_in(&self, calls: usize) {
        self.door.add_permits(calls);
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
        self.door.acquire().await.unwrap().forget();
        let mut answers = Vec::new();
        for outgoing in batch {
            let accept = || self.state.lock().unwrap().accepted.push(outgoing.clone());
            match script(outgoing) {
                Step::Accept => {
                    accept();
                    answers.push(Ok(Receipt::new()));
                }
                Step::Fail(error) => answers.push(Err(error)),
                Step::AcceptSilently => {
                    accept();
                    std::future::pending::<()>().await;
                }
                Step::Hang => std::future::pending::<()>().await,
                Step::Panic => panic!("as the script says"),
                Step::Skip => {}
            }
        }
        answers
    }

    async fn check(&self, _: &[&str]) -> Result<Vec<Finding>, PublishError> {
        Ok(Vec::new())
    }

    async fn close(&self) {}
}
