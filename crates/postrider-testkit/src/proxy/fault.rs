//! The faults of a connection.

use std::time::Duration;

/// The direction of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the client to the server.
    ToServer,
    /// From the server to the client.
    ToClient,
}

/// A fault of the connections through a proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Fault {
    /// No fault: everything is forwarded.
    #[default]
    None,
    /// Delays everything, in both directions.
    Delay(Duration),
    /// Forwards nothing and keeps connections open. The held bytes arrive when the order changes.
    Stall,
    /// Ends a connection when `bytes` have passed since the order, or since the connection was opened.
    CutAfter {
        /// The direction that is counted.
        direction: Direction,
        /// The limit; bytes beyond it are lost.
        bytes: u64,
    },
    /// Discards everything and keeps connections open. New connections are accepted and do not reach the server. An affected
    /// connection has lost bytes, so it stays like this until it is cut.
    BlackHole,
    /// Ends connections at once, existing and new ones.
    Refuse,
    /// Forwards requests. Drops the first reply to one and ends the connection: the server has handled a request whose result the
    /// client never receives.
    DropReply,
}

/// The current order of a proxy to its connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct FaultOrder {
    pub(super) fault: Fault,
    /// The number of the order.
    pub(super) number: u64,
    /// Whether the first connection that the order ends uses it up.
    pub(super) once: bool,
    /// The number of times that existing connections were cut.
    pub(super) cuts: u64,
}

impl FaultOrder {
    pub(super) fn replace(&mut self, fault: Fault, once: bool) {
        *self = Self { fault, number: self.number + 1, once, cuts: self.cuts };
    }

    /// Whether a connection that saw the order `current` may end by it. An order for one connection ends only the first.
    pub(super) fn use_up(&mut self, current: &Self) -> bool {
        let holds = self.number == current.number;
        if holds && self.once {
            self.replace(Fault::None, false);
        }
        holds
    }
}
