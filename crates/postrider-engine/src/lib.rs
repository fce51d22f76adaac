//! The engine of Postrider: it moves messages.
//!
//! One delivery loop claims, dispatches, delivers and settles ([`delivery_loop`]); the step between claim and settle differs: a
//! [`worker`] runs handlers, a [`relay`] publishes to brokers and webhooks, a [`saga`] runner makes the calls of follow-ups. A
//! [`consumer`] receives messages from a broker and handles each exactly once. All four have the same methods and results
//! ([`runner`]).
//!
//! With the feature `cron`, schedules stage recurring messages.
//!
//! Applications depend on the crate `postrider`, which re-exports all of this.

pub mod consumer;
pub(crate) mod context;
mod counter;
#[cfg(feature = "cron")]
pub mod cron;
pub mod delivery_loop;
mod failure;
mod failure_policy;
mod pruner;
pub mod relay;
pub mod runner;
pub mod saga;
mod setup;
#[cfg(feature = "opentelemetry")]
mod trace_link;
pub mod worker;

pub use consumer::{Consumer, ConsumerBuilder};
#[cfg(feature = "testing")]
pub use context::ContextBuilder;
pub use relay::{Destination, Relay, Route};
pub use runner::{Health, Report, Running, Stopped};
pub use saga::SagaRunner;
pub use worker::{Context, Failure, Queue, Tx, Worker, WorkerBuilder};
