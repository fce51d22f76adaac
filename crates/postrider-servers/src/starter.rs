//! The thread that starts every server.
//!
//! A server is told to end when its parent dies, and to Linux the parent is the *thread* that started it. A thread that only
//! waits for one server, or one that a runtime lends for a moment, would take the server along when it ends. So one
//! thread starts them all, and lives as long as the process.

use std::io;
use std::process::{Child, Command};
use std::sync::OnceLock;
use std::sync::mpsc::{Sender, SyncSender, channel, sync_channel};
use std::thread;

type Order = (Command, SyncSender<io::Result<Child>>);

/// Starts a program whose parent is this process as long as it lives.
pub(crate) fn spawn(command: Command) -> io::Result<Child> {
    static ORDERS: OnceLock<Sender<Order>> = OnceLock::new();
    let orders = ORDERS.get_or_init(|| {
        let (orders, received) = channel::<Order>();
        thread::spawn(move || {
            for (mut command, answer) in received {
                // Whoever ordered it waits for the answer.
                answer.send(command.spawn()).ok();
            }
        });
        orders
    });
    let (answer, started) = sync_channel(1);
    let gone = || io::Error::other("the thread that starts servers has ended");
    orders.send((command, answer)).map_err(|_| gone())?;
    started.recv().map_err(|_| gone())?
}
