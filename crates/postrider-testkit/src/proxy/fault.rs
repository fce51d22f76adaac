//! What can happen to a connection.

use std::time::Duration;

/// Which way bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the client to the server.
    ToServer,
    /// From the server to the client.
    ToClient,
}

/// What happens to connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Fault {
    /// Nothing: everything passes.
    #[default]
    None,
    /// Whatever is sent, either way, takes so long.
    Delay(Duration),
    /// Nothing is passed on, and no connection ends. What is held back arrives when the order changes.
    Stall,
    /// A connection ends as soon as so many bytes have passed since the order, or since it was opened.
    CutAfter {
        /// In this direction.
        direction: Direction,
        /// So many; what was sent beyond them is lost.
        bytes: u64,
    },
    /// Everything is swallowed, and no connection ends. New connections are accepted and do not reach the server. A connection
    /// that this happened to has lost bytes, so it stays like this until it is cut.
    BlackHole,
    /// Connections end at once, those that are there and those that come.
    Refuse,
    /// Requests are passed on. The first answer to one is lost, and with it the connection: the server has done what the client
    /// will never hear of.
    DropReply,
}

/// What the connections of a proxy are told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Orders {
    pub(super) fault: Fault,
    /// Which order this is.
    pub(super) number: u64,
    /// Whether the first connection that it ends uses it up.
    pub(super) once: bool,
    /// How often the connections of the time were cut.
    pub(super) cuts: u64,
}

impl Orders {
    pub(super) fn give(&mut self, fault: Fault, once: bool) {
        *self = Self { fault, number: self.number + 1, once, cuts: self.cuts };
    }

    /// Whether a connection that found this order in force may end by it. Of several that an order for one would end, one may.
    pub(super) fn strike(&mut self, found: &Self) -> bool {
        let holds = self.number == found.number;
        if holds && self.once {
            self.give(Fault::None, false);
        }
        holds
    }
}
