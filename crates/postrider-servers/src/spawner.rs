//! The thread that starts every server.
//!
//! The system ends a server when its parent dies, and for Linux the parent is the *thread* that started it. A thread that only
//! waits for one server, or a thread of a runtime's pool, would end the server when it ends. So one thread starts all servers,
//! and lives as long as the process.

use std::io;
use std::process::{Child, Command};
use std::sync::OnceLock;
use std::sync::mpsc::{Sender, SyncSender, channel, sync_channel};
use std::thread;

type Request = (Command, SyncSender<io::Result<Child>>);

/// Starts a program whose parent thread lives as long as this process.
pub(crate) fn spawn(command: Command) -> io::Result<Child> {
    static REQUESTS: OnceLock<Sender<Request>> = OnceLock::new();
    let requests = REQUESTS.get_or_init(|| {
        let (requests, received) = channel::<Request>();
        thread::spawn(move || {
            for (mut command, result) in received {
                // The caller waits for the result.
                result.send(command.spawn()).ok();
            }
        });
        requests
    });
    let (result, started) = sync_channel(1);
    let gone = || io::Error::other("the thread that starts servers has ended");
    requests.send((command, result)).map_err(|_| gone())?;
    started.recv().map_err(|_| gone())?
}
