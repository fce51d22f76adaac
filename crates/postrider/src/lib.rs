#![doc = include_str!("../../../README.md")]
//!
//! # Where things are
//!
//! This crate holds no logic: it re-exports the rooms of the house, each store behind its own feature.
//!
//! | module | what is in it |
//! |---|---|
//! | the crate's root | [`Message`], its names, [`Event`], [`Outbox`], [`Store`], [`Settlement`], [`RetryStrategy`] |
//! | [`inspect`], [`schema`], [`timetable`], [`wake`] | the other seams of a store |
//! | [`cloudevents`], [`hlc`], [`codec`] | what travels, and in what order |
#![cfg_attr(
    feature = "worker",
    doc = "| [`worker`] | claims messages, runs their handlers and settles them |"
)]
#![cfg_attr(feature = "relay", doc = "| [`relay`] | claims messages and publishes them |")]
#![cfg_attr(feature = "relay", doc = "| [`transports`] | where a relay publishes to |")]
#![cfg_attr(feature = "cron", doc = "| [`cron`] | schedules, and the scheduler that stages what recurs |")]
#![cfg_attr(feature = "memory", doc = "| [`memory`] | the store in memory, for tests |")]
#![cfg_attr(
    feature = "sqlite",
    doc = "| [`sqlite`] | the store in a file of SQLite, and staging in sqlx transactions |"
)]
#![cfg_attr(
    feature = "postgres",
    doc = "| [`postgres`] | the store in PostgreSQL, and staging in the transactions of your driver |"
)]
#![cfg_attr(
    feature = "testing",
    doc = "| [`testing`] | a store with a virtual clock, assertions, and faults on demand, for your own tests |"
)]

pub use postrider_core::*;
#[cfg(feature = "cron")]
pub use postrider_engine::cron;
#[cfg(feature = "worker")]
pub use postrider_engine::{Context, Failure, Queue, Tx, Worker, worker};
#[cfg(feature = "relay")]
pub use postrider_engine::{Destination, Relay, Route, relay};
#[cfg(feature = "memory")]
pub use postrider_stores::memory;
#[cfg(feature = "postgres")]
pub use postrider_stores::postgres;
#[cfg(feature = "sqlite")]
pub use postrider_stores::sqlite;
#[cfg(feature = "testing")]
pub use postrider_testing as testing;
#[cfg(feature = "relay")]
pub use postrider_transports as transports;
