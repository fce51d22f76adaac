//! A component of the daemon: the relay of a database, a consumer, or the runner of a follow-up queue.

use crate::problem::Problem;
use async_trait::async_trait;
use postrider::consumer::StartError;
use std::{fmt::Debug, time::Duration};

/// The result of starting a component: a running one, or the prepared one back with the reason.
pub(super) type StartResult = Result<Box<dyn RunningComponent>, (Box<dyn PreparedComponent>, Problem)>;

/// A component whose dependencies are open and that has not started yet.
#[async_trait]
pub(super) trait PreparedComponent: Debug + Send + Sync {
    /// Starts the component. Call it after the component that it replaces has drained.
    async fn start(self: Box<Self>) -> StartResult;

    /// Starts the component again after a drain.
    async fn resume(self: Box<Self>) -> StartResult;

    /// Closes all connections.
    async fn close(self: Box<Self>);
}

/// A running component.
#[async_trait]
pub(super) trait RunningComponent: Debug + Send + Sync {
    /// Checks liveness and readiness.
    async fn health(&mut self) -> Health;

    /// Stops claiming and receiving, and waits up to `deadline` for the messages in flight.
    async fn drain(self: Box<Self>, deadline: Duration) -> Box<dyn PreparedComponent>;
}

/// Liveness and readiness of a component.
#[derive(Debug, Default)]
pub(super) struct Health {
    /// Loops that have ended unexpectedly: the process should be restarted.
    pub(super) dead_tasks: Vec<&'static str>,
    /// Why the component is not ready, if it is not.
    pub(super) not_ready_reason: Option<&'static str>,
}

impl From<postrider::Health> for Health {
    fn from(health: postrider::Health) -> Self {
        let not_ready_reason = match (health.is_ready(), &health.store, health.start_error.as_deref()) {
            (true, ..) => None,
            (false, Err(_), _) => Some("database unavailable"),
            (false, Ok(()), Some(StartError::RetentionTooShort { .. })) => {
                Some("deduplication records expire too soon")
            }
            (false, Ok(()), Some(_)) => Some("source unavailable"),
            (false, Ok(()), None) => Some("stopped"),
        };
        Self { dead_tasks: health.dead_tasks, not_ready_reason }
    }
}
