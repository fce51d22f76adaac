//! Helpers that the tests of the program share.

#![allow(dead_code, reason = "not every test program needs all of it")]

pub(crate) mod doctor;
pub(crate) mod health;
pub(crate) mod places;
pub(crate) mod program;
pub(crate) mod readme;
pub(crate) mod round_trip;
pub(crate) mod shop;
pub(crate) mod terminal;
pub(crate) mod tree;
pub(crate) mod webhooks;
