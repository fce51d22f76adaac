//! What one kind of server needs, and no other.

use std::fmt;
use std::process::Command;

use anyhow::Result;
use nix::sys::signal::Signal;

use crate::home::Home;
use crate::kind::Kind;

/// How to run one kind of server.
pub trait Recipe: fmt::Debug + Send + Sync {
    /// Which kind.
    fn kind(&self) -> Kind;

    /// How many ports it listens on.
    fn ports(&self) -> usize;

    /// Fills a new home, once, before the first start.
    fn prepare(&self, home: &Home) -> Result<()>;

    /// The programs to start, in this order. The last one is the server; those before it are helpers that SIGTERM ends.
    fn commands(&self, home: &Home, ports: &[u16]) -> Vec<Command>;

    /// Asks whoever listens there for the version, in the server's own protocol. An error until the server is ready for work,
    /// and when the one who answers is not the process `id` in this home.
    fn identify(&self, home: &Home, ports: &[u16], id: u32) -> Result<String>;

    /// Where clients connect.
    fn url(&self, ports: &[u16]) -> String;

    /// The signal that makes it end soon and properly, once it is ready.
    fn stop(&self) -> Signal;

    /// The signal that ends it at once, whatever it is doing, as a crash does. It also gets this one when its starter dies.
    fn crash(&self) -> Signal;
}
