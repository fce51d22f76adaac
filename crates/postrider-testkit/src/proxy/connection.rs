//! One connection through a proxy: from the client to the server and back.

use super::{Counts, Direction, Fault, FaultOrder, Tap};
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
pub(super) struct ConnectionRunner {
    server: watch::Receiver<String>,
    order: Arc<watch::Sender<FaultOrder>>,
    counts: Arc<watch::Sender<Counts>>,
}

/// The state that both directions of a connection share.
#[derive(Debug, Default)]
struct ConnectionState {
    /// The number of the order under which the last request was forwarded.
    requested_under: AtomicU64,
    /// Whether bytes of this connection are lost.
    is_swallowed: AtomicBool,
}

/// One direction of a connection.
struct Pipe<'a> {
    runner: &'a ConnectionRunner,
    connection: &'a ConnectionState,
    direction: Direction,
    order: watch::Receiver<FaultOrder>,
    to: OwnedWriteHalf,
    tap: Tap,
    /// The number of an order, and the bytes forwarded under it.
    passed: (u64, u64),
}

/// The connection must end.
struct Cut;

impl From<io::Error> for Cut {
    fn from(_: io::Error) -> Self {
        Self
    }
}

/// Counts a connection as open.
struct OpenConnection<'a>(&'a watch::Sender<Counts>);

impl ConnectionRunner {
    pub(super) fn new(
        server: watch::Receiver<String>,
        order: Arc<watch::Sender<FaultOrder>>,
        counts: Arc<watch::Sender<Counts>>,
    ) -> Self {
        Self { server, order, counts }
    }

    pub(super) async fn run(self: Arc<Self>, client: TcpStream, tap: Tap) {
        let mut order = self.order.subscribe();
        let cuts = order.borrow().cuts;
        let _open = OpenConnection::count(&self.counts);
        let has_ended = async {
            loop {
                let current = *order.borrow_and_update();
                if current.cuts != cuts || current.fault == Fault::Refuse && self.ends_connection(&current) {
                    return;
                }
                if order.changed().await.is_err() {
                    return;
                }
            }
        };
        tokio::select! {
            biased;
            () = has_ended => {}
            _ = self.forward(client, tap) => {}
        }
    }

    async fn forward(&self, mut client: TcpStream, tap: Tap) -> Result<(), Cut> {
        if self.order.borrow().fault == Fault::BlackHole {
            // Read and discard, so that a client that sends a lot does not block.
            tokio::io::copy(&mut client, &mut tokio::io::sink()).await?;
            return std::future::pending().await;
        }
        let server = self.server.borrow().clone();
        let server = TcpStream::connect(server).await?;
        client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        let (from_client, to_client) = client.into_split();
        let (from_server, to_server) = server.into_split();
        // Orders count from one, so no request was forwarded under this number.
        let connection =
            ConnectionState { requested_under: AtomicU64::new(u64::MAX), ..ConnectionState::default() };
        let pipe = |direction, to, tap| Pipe {
            runner: self,
            connection: &connection,
            direction,
            order: self.order.subscribe(),
            to,
            tap,
            passed: (0, 0),
        };
        let to_server_pipe = pipe(Direction::ToServer, to_server, tap);
        let to_client_pipe = pipe(Direction::ToClient, to_client, Box::new(|_| ()));
        tokio::try_join!(to_server_pipe.forward(from_client), to_client_pipe.forward(from_server)).map(|_| ())
    }

    /// Whether this order ends the connection.
    fn ends_connection(&self, current: &FaultOrder) -> bool {
        let mut ends_connection = false;
        self.order.send_if_modified(|order| {
            let before = *order;
            ends_connection = order.use_up(current);
            *order != before
        });
        ends_connection
    }
}

impl Pipe<'_> {
    async fn forward(mut self, mut from: OwnedReadHalf) -> Result<(), Cut> {
        let mut buffer = vec![0; 1 << 16];
        loop {
            let current = self.check_order()?;
            if current.fault == Fault::Stall {
                self.order.changed().await.map_err(|_| Cut)?;
                continue;
            }
            let length = tokio::select! {
                biased;
                changed = self.order.changed() => { changed.map_err(|_| Cut)?; continue }
                length = from.read(&mut buffer) => length?,
            };
            if length == 0 && self.is_swallowed(&current) {
                return std::future::pending().await;
            }
            if length == 0 {
                // Dropping the write half closes this direction, and leaves the other one open.
                return Ok(());
            }
            self.pass(&buffer[..length]).await?;
        }
    }

    /// Forwards bytes under the current order, which may have changed since the read, and may change until the bytes are written.
    async fn pass(&mut self, mut bytes: &[u8]) -> Result<(), Cut> {
        while !bytes.is_empty() {
            let current = self.check_order()?;
            if self.is_swallowed(&current) {
                return Ok(());
            }
            let mut allowed = bytes.len();
            match current.fault {
                Fault::Stall => {
                    self.order.changed().await.map_err(|_| Cut)?;
                    continue;
                }
                Fault::Delay(delay) => tokio::select! {
                    biased;
                    changed = self.order.changed() => { changed.map_err(|_| Cut)?; continue }
                    () = tokio::time::sleep(delay) => {}
                },
                Fault::CutAfter { direction, bytes: limit } if direction == self.direction => {
                    let left = usize::try_from(limit - self.passed.1).unwrap_or(usize::MAX);
                    allowed = allowed.min(left);
                }
                Fault::DropReply if self.direction == Direction::ToServer => {
                    // Before the write: the reply may be fast.
                    self.connection.requested_under.store(current.number, Ordering::SeqCst);
                }
                Fault::DropReply
                    if self.connection.requested_under.load(Ordering::SeqCst) == current.number =>
                {
                    if self.runner.ends_connection(&current) {
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

    /// The current order; ends the connection when the limit of bytes under it is reached.
    fn check_order(&mut self) -> Result<FaultOrder, Cut> {
        loop {
            let current = *self.order.borrow_and_update();
            if self.passed.0 != current.number {
                self.passed = (current.number, 0);
            }
            match current.fault {
                Fault::CutAfter { direction, bytes } if direction == self.direction => {
                    if self.passed.1 < bytes {
                        return Ok(current);
                    }
                    if self.runner.ends_connection(&current) {
                        return Err(Cut);
                    }
                }
                _ => return Ok(current),
            }
        }
    }

    fn is_swallowed(&self, current: &FaultOrder) -> bool {
        if current.fault == Fault::BlackHole {
            self.connection.is_swallowed.store(true, Ordering::SeqCst);
        }
        self.connection.is_swallowed.load(Ordering::SeqCst)
    }

    fn count(&mut self, bytes: u64) {
        self.passed.1 += bytes;
        self.runner.counts.send_modify(|counts| match self.direction {
            Direction::ToServer => counts.to_server += bytes,
            Direction::ToClient => counts.to_client += bytes,
        });
    }
}

impl<'a> OpenConnection<'a> {
    fn count(counts: &'a watch::Sender<Counts>) -> Self {
        counts.send_modify(|counts| {
            counts.connections += 1;
            counts.open += 1;
        });
        Self(counts)
    }
}

impl Drop for OpenConnection<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|counts| counts.open -= 1);
    }
}
