//! PostgreSQL: the store, the same guarantees in hand-written SQL, and the cheapest possible lease.

mod database;
mod ours;
mod raw;
mod reference;

pub(crate) use database::Databases;
pub(crate) use ours::Ours;
pub(crate) use raw::Raw;
pub(crate) use reference::{QUEUE, Reference, STAGE};
