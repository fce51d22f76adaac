//! The suites that every Postrider store passes, alone and under a worker.
//!
//! A suite is a list of plain `async fn`s over a [`Fixture`]; the macro [`store_suite!`] only turns their names into tests.
//! What a store cannot do it declares in [`Features`], in plain sight. [`flaws`] holds broken stores, which the
//! suite must catch: a checker that has never failed proves nothing. [`adapter_suite!`] runs what concerns staging through
//! another driver's transactions, [`worker_suite!`] what a worker does on a store, and
//! [`saga_suite!`] what becomes of follow-ups.

// A test kit fails by panicking.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

pub mod adapter;
pub mod broker;
pub mod consumer;
pub mod fixture;
pub mod flaws;
pub mod history;
pub mod pooler;
pub mod postgres;
mod private;
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
pub mod transport;
pub mod worker;

pub use fixture::{Features, Fixture, TransactFixture};
pub use history::History;
pub use postrider_servers::{Kind, free_ports};
