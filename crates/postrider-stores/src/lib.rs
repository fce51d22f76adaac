//! The stores of Postrider: one module per database, each behind its own feature.
//!
//! | module and feature | for |
//! |---|---|
//! | `memory` | tests and experiments; messages do not survive the process |
//! | `sqlite` | one machine: a file, through sqlx, with nothing to install |
//! | `postgres` | PostgreSQL 14 and later, through sqlx |
//!
//! Every store passes the same test suite, and implements the traits of `postrider-core`: `Store`, `Notifier`, `Timetable`, `Inspect`, `Operate`,
//! `Schema`, `Checkup`, and `Outbox` and `Inbox` for its driver's transaction. The features `tokio-postgres`, `diesel-async` and `sea-orm` add
//! staging and admitting in the transactions of these drivers; see `postgres::PostgresOutbox` and, for `sea-orm`, `sqlite::SqliteOutbox`.
//! `sea-orm` works with `sqlite`, `postgres` or both.

#[cfg(any(feature = "postgres", feature = "sqlite"))]
#[macro_use]
mod template;

#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod arrivals;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod delivered_claim;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod envelope;
#[cfg(feature = "memory")]
pub mod memory;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod object_script;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod script;
#[cfg(feature = "sqlite")]
pub mod sqlite;
#[cfg(any(feature = "memory", feature = "postgres", feature = "sqlite"))]
mod turns;
