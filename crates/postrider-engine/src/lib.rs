//! What moves Postrider's messages.
//!
//! One loop claims, hands over, runs and settles ([`carry`]); what happens between claim and settle is up to whoever uses it.
//! The [`worker`] runs handlers there.
//!
//! With the feature `cron`, schedules stage what recurs.
//!
//! Users add the crate `postrider`, which re-exports all of this.

pub mod carry;
#[cfg(feature = "cron")]
pub mod cron;
pub mod worker;

pub use carry::{Stopped, Tally};
#[cfg(feature = "testing")]
pub use worker::ContextBuilder;
pub use worker::{Context, Failure, Queue, Running, Tx, Worker, WorkerBuilder};
