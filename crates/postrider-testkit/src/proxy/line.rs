//! One connection through a proxy: to the server and back.

use super::{Counts, Direction, Fault, Orders, Tap};
use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::watch,
};

/// Runs connections to one server.
#[derive(Debug)]
pub(super) struct Line {
    server: String,
    orders: Arc<watch::Sender<Orders>>,
    counts: Arc<watch::Sender<Counts>>,
}

/// What the two ways of a connection know of each other.
#[derive(Debug, Default)]
struct Knot {
    /// The order under which a request was passed on last.
    asked_under: AtomicU64,
    /// Whether bytes of this connection are lost.
    is_swallowed: AtomicBool,
}

/// One way of a connection.
struct Way<'a> {
    line: &'a Line,
    knot: &'a Knot,
    direction: Direction,
    orders: watch::Receiver<Orders>,
    to: OwnedWriteHalf,
    tap: Tap,
    /// How many bytes have passed under an order.
    passed: (u64, u64),
}

/// A connection has to end.
struct Cut;

impl From<io::Error> for Cut {
    fn from(_: io::Error) -> Self {
        Self
    }
}

/// Counts a connection as open.
struct Open<'a>(&'a watch::Sender<Counts>);

impl Line {
    pub(super) fn new(
        server: String,
        orders: Arc<watch::Sender<Orders>>,
        counts: Arc<watch::Sender<Counts>>,
    ) -> Self {
        Self { server, orders, counts }
    }

    pub(super) async fn run(self: Arc<Self>, client: TcpStream, tap: Tap) {
        let mut orders = self.orders.subscribe();
        let cuts = orders.borrow().cuts;
        let _open = Open::count(&self.counts);
        let has_ended = async {
            loop {
                let found = *orders.borrow_and_update();
                if found.cuts != cuts || found.fault == Fault::Refuse && self.strikes(&found) {
                    return;
                }
                if orders.changed().await.is_err() {
                    return;
                }
            }
        };
        tokio::select! {
            biased;
            () = has_ended => {}
            _ = self.carry(client, tap) => {}
        }
    }

    async fn carry(&self, mut client: TcpStream, tap: Tap) -> Result<(), Cut> {
        if self.orders.borrow().fault == Fault::BlackHole {
            // Read, so that whoever sends much finds nothing amiss either.
            tokio::io::copy(&mut client, &mut tokio::io::sink()).await?;
            return std::future::pending().await;
        }
        let server = TcpStream::connect(&self.server).await?;
        client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        let (from_client, to_client) = client.into_split();
        let (from_server, to_server) = server.into_split();
        // Orders count from one, so no request was passed on under this one.
        let knot = Knot { asked_under: AtomicU64::new(u64::MAX), ..Knot::default() };
        let way = |direction, to, tap| Way {
            line: self,
            knot: &knot,
            direction,
            orders: self.orders.subscribe(),
            to,
            tap,
            passed: (0, 0),
        };
        let there = way(Direction::ToServer, to_server, tap);
        let back = way(Direction::ToClient, to_client, Box::new(|_| ()));
        tokio::try_join!(there.carry(from_client), back.carry(from_server)).map(|_| ())
    }

    /// Whether a connection ends by this order.
    fn strikes(&self, found: &Orders) -> bool {
        let mut strikes = false;
        self.orders.send_if_modified(|orders| {
            let before = *orders;
            strikes = orders.strike(found);
            *orders != before
        });
        strikes
    }
}

impl Way<'_> {
    async fn carry(mut self, mut from: OwnedReadHalf) -> Result<(), Cut> {
        let mut buffer = vec![0; 1 << 16];
        loop {
            let found = self.obey()?;
            if found.fault == Fault::Stall {
                self.orders.changed().await.map_err(|_| Cut)?;
                continue;
            }
            let length = tokio::select! {
                biased;
                changed = self.orders.changed() => { changed.map_err(|_| Cut)?; continue }
                length = from.read(&mut buffer) => length?,
            };
            if length == 0 && self.is_swallowed(&found) {
                return std::future::pending().await;
            }
            if length == 0 {
                // Dropping the other end of this way passes the end on, and leaves the way back open.
                return Ok(());
            }
            self.pass(&buffer[..length]).await?;
        }
    }

    /// Passes bytes on as ordered, which may have changed since they were awaited, and may change until they are gone.
    async fn pass(&mut self, mut bytes: &[u8]) -> Result<(), Cut> {
        while !bytes.is_empty() {
            let found = self.obey()?;
            if self.is_swallowed(&found) {
                return Ok(());
            }
            let mut allowed = bytes.len();
            match found.fault {
                Fault::Stall => {
                    self.orders.changed().await.map_err(|_| Cut)?;
                    continue;
                }
                Fault::Delay(delay) => tokio::select! {
                    biased;
                    changed = self.orders.changed() => { changed.map_err(|_| Cut)?; continue }
                    () = tokio::time::sleep(delay) => {}
                },
                Fault::CutAfter { direction, bytes: limit } if direction == self.direction => {
                    let left = usize::try_from(limit - self.passed.1).unwrap_or(usize::MAX);
                    allowed = allowed.min(left);
                }
                Fault::DropReply if self.direction == Direction::ToServer => {
                    // Before it is sent: the answer may be fast.
                    self.knot.asked_under.store(found.number, Ordering::SeqCst);
                }
                Fault::DropReply if self.knot.asked_under.load(Ordering::SeqCst) == found.number => {
                    if self.line.strikes(&found) {
                        return Err(Cut);
                    }
                    continue;
                }
                _ => {}
            }
            let (now, later) = bytes.split_at(allowed);
            (self.tap)(now);
            self.to.write_all(now).await?;
            self.count(now.len() as u64);
            bytes = later;
        }
        Ok(())
    }

    /// The order that holds now; ends the connection when enough has passed under it.
    fn obey(&mut self) -> Result<Orders, Cut> {
        loop {
            let found = *self.orders.borrow_and_update();
            if self.passed.0 != found.number {
                self.passed = (found.number, 0);
            }
            match found.fault {
                Fault::CutAfter { direction, bytes } if direction == self.direction => {
                    if self.passed.1 < bytes {
                        return Ok(found);
                    }
                    if self.line.strikes(&found) {
                        return Err(Cut);
                    }
                }
                _ => return Ok(found),
            }
        }
    }

    fn is_swallowed(&self, found: &Orders) -> bool {
        if found.fault == Fault::BlackHole {
            self.knot.is_swallowed.store(true, Ordering::SeqCst);
        }
        self.knot.is_swallowed.load(Ordering::SeqCst)
    }

    fn count(&mut self, bytes: u64) {
        self.passed.1 += bytes;
        self.line.counts.send_modify(|counts| match self.direction {
            Direction::ToServer => counts.to_server += bytes,
            Direction::ToClient => counts.to_client += bytes,
        });
    }
}

impl<'a> Open<'a> {
    fn count(counts: &'a watch::Sender<Counts>) -> Self {
        counts.send_modify(|counts| {
            counts.connections += 1;
            counts.open += 1;
        });
        Self(counts)
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|counts| counts.open -= 1);
    }
}
