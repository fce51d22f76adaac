//! One file per command.

pub(crate) mod bench;
pub(crate) mod ci;
pub(crate) mod faults;
pub(crate) mod program;
pub(crate) mod services;
pub(crate) mod soak;
pub(crate) mod test;
