//! What moves Postrider's messages.
//!
//! One loop claims, hands over, runs and settles ([`carry`]); what happens between claim and settle is up to whoever uses it.
//! The [`worker`] runs handlers there, the [`relay`] publishes. The [`consumer`] receives what others publish. The
//! [`saga`] runner makes the calls that follow a change.
//!
//! With the feature `cron`, schedules stage what recurs.
//!
//! Users add the crate `postrider`, which re-exports all of this.

pub mod carry;
pub mod consumer;
#[cfg(feature = "cron")]
pub mod cron;
mod failure;
mod judge;
#[cfg(feature = "opentelemetry")]
mod link;
pub mod relay;
pub mod saga;
mod set_up;
pub mod worker;

pub use carry::{Stopped, Tally};
pub use consumer::{Consumed, Consumer, ConsumerBuilder};
pub use relay::{Destination, Relay, Route};
pub use saga::SagaRunner;
#[cfg(feature = "testing")]
pub use worker::ContextBuilder;
pub use worker::{Context, Failure, Queue, Running, Tx, Worker, WorkerBuilder};
