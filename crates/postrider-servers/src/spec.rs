//! The description of one kind of server.

use std::fmt;
use std::process::Command;

use anyhow::Result;
use nix::sys::signal::Signal;

use crate::kind::Kind;
use crate::server_dir::ServerDir;

/// How to run one kind of server.
pub trait ServerSpec: fmt::Debug + Send + Sync {
    /// The kind of server.
    fn kind(&self) -> Kind;

    /// The number of ports it listens on.
    fn ports(&self) -> usize;

    /// Fills the new folder, once, before the first start.
    fn prepare(&self, dir: &ServerDir) -> Result<()>;

    /// The programs to start, in this order. The last one is the server; those before it are auxiliary programs that SIGTERM ends.
    fn commands(&self, dir: &ServerDir, ports: &[u16]) -> Vec<Command>;

    /// Asks the process that listens on the ports for its version, in the server's own protocol. Fails until the server is ready
    /// for work, and if the process that replies is not the process `id` of this folder.
    fn identify(&self, dir: &ServerDir, ports: &[u16], id: u32) -> Result<String>;

    /// The URL for clients.
    fn url(&self, ports: &[u16]) -> String;

    /// The signal for a quick graceful shutdown of a server that is ready.
    fn stop(&self) -> Signal;

    /// The signal that ends it at once, as a crash does. The server also gets it when its parent dies.
    fn crash(&self) -> Signal;
}
