//! The test suites of Postrider's stores, transports, sources, workers, relays, consumers and sagas.
//!
//! A suite is a list of plain `async fn`s over a [`Fixture`]; a macro such as [`store_suite!`] turns them into tests. A store
//! declares unsupported features in [`Features`]. [`negative_controls`] contains broken stores that the suite must detect: a
//! checker that has never failed proves nothing. [`adapter_suite!`] runs the cases about staging in the transactions of another
//! driver, [`worker_suite!`] tests a worker on a store, and [`saga_suite!`] tests follow-ups.

// A test kit fails by panicking.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

pub mod adapter;
pub mod broker;
pub mod consumer;
pub mod documents;
pub mod failover;
pub mod fixture;
pub mod history;
pub mod negative_controls;
pub mod pooler;
pub mod postgres;
mod private_server;
pub mod process;
pub mod proxy;
pub mod relay;
pub mod relay_faults;
pub mod round_trips;
pub mod saga;
pub mod server;
pub mod shared;
pub mod source;
pub mod store;
pub mod tls;
pub mod transport;
pub mod worker;

pub use fixture::{Features, Fixture, TransactFixture};
pub use history::History;
pub use postrider_servers::{Kind, free_ports};
