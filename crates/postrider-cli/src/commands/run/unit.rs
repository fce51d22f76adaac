//! One part of the daemon: the relay of a database, a consumer, a runner of follow-ups.

use crate::problem::Problem;
use async_trait::async_trait;
use std::{fmt::Debug, time::Duration};

/// A part for which everything is there that it needs, and that does nothing yet.
#[async_trait]
pub(super) trait Rested: Debug + Send + Sync {
    /// Begins. Call it when the part whose place it takes has stopped; where it cannot, it comes back.
    async fn start(self: Box<Self>) -> Result<Box<dyn Working>, (Box<dyn Rested>, Problem)>;

    /// Begins again after having stopped.
    async fn resume(self: Box<Self>) -> Result<Box<dyn Working>, (Box<dyn Rested>, Problem)>;

    /// Lets go of everything.
    async fn close(self: Box<Self>);
}

/// A part at work.
#[async_trait]
pub(super) trait Working: Debug + Send + Sync {
    async fn ping(&mut self) -> Pulse;

    /// Lets what is in hand end, but no longer than this.
    async fn drain(self: Box<Self>, deadline: Duration) -> Box<dyn Rested>;
}

/// How a part is.
#[derive(Debug, Default)]
pub(super) struct Pulse {
    /// What has ended though it should not: the process should be restarted.
    pub(super) dead: Vec<&'static str>,
    /// What keeps it from its work.
    pub(super) hindrance: Option<&'static str>,
}

impl From<postrider::worker::Health> for Pulse {
    fn from(health: postrider::worker::Health) -> Self {
        let hindrance = match (health.is_ready(), &health.store) {
            (true, _) => None,
            (false, Err(_)) => Some("its database does not answer"),
            (false, Ok(())) => Some("it has stopped"),
        };
        Self { dead: health.dead_loops, hindrance }
    }
}
