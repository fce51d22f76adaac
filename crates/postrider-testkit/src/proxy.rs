//! A proxy before a server that does to connections what networks and dying servers do.
//!
//! What it does is an order, which can be changed at any time and holds for the connections that are there and for those that
//! come. Between orders nothing is lost: bytes that a stall holds back arrive when it ends.

mod fault;
mod line;

pub use fault::{Direction, Fault};

use fault::Orders;
use line::Line;
use std::{
    io::ErrorKind,
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    task::{JoinHandle, JoinSet},
    time::sleep,
};

const PATIENCE: Duration = Duration::from_secs(30);
/// How long a port that is taken is let be before it is tried again.
const BUSY: Duration = Duration::from_millis(10);

/// Sees what a client sends, before the server does. Every connection has its own.
pub(crate) type Tap = Box<dyn FnMut(&[u8]) + Send>;

/// What has gone through a proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Connections that clients have opened, refused ones among them.
    pub connections: u64,
    /// Those that are open now.
    pub open: u64,
    /// Bytes that were passed on to the server.
    pub to_server: u64,
    /// Bytes that were passed on to clients.
    pub to_client: u64,
}

/// Listens on a free port and passes on what it is not ordered to spoil. Dropped, it cuts every connection.
#[derive(Debug)]
pub struct FaultProxy {
    address: SocketAddr,
    orders: Arc<watch::Sender<Orders>>,
    counts: Arc<watch::Sender<Counts>>,
    task: JoinHandle<()>,
}

impl FaultProxy {
    /// Stands before the server at `host:port`, which need not be there yet.
    pub async fn before(server: &str) -> Self {
        Self::tapped(server, || Box::new(|_| ())).await
    }

    /// Stands before the server at `host:port`, on a port that was chosen before: for servers that tell their clients where to come.
    ///
    /// # Panics
    /// When the port is taken.
    pub async fn on(port: u16, server: &str) -> Self {
        Self::listening(port, server, || Box::new(|_| ())).await
    }

    /// Stands before the server of a URL, which must name a port, and answers with the URL through it.
    ///
    /// # Panics
    /// When the URL names no port.
    pub async fn before_url(url: &str) -> (Self, String) {
        let (start, server, end) = split(url).unwrap_or_else(|| panic!("{url} names no host and port"));
        let proxy = Self::before(server).await;
        let through = format!("{start}{}{end}", proxy.address);
        (proxy, through)
    }

    pub(crate) async fn tapped(server: &str, tap: impl Fn() -> Tap + Send + Sync + 'static) -> Self {
        Self::listening(0, server, tap).await
    }

    async fn listening(port: u16, server: &str, tap: impl Fn() -> Tap + Send + Sync + 'static) -> Self {
        let listener = tokio::time::timeout(PATIENCE, bound(port)).await.expect("somebody else has the port");
        let address = listener.local_addr().unwrap();
        let orders = Arc::new(watch::Sender::new(Orders::default()));
        let counts = Arc::new(watch::Sender::new(Counts::default()));
        let line = Line::new(server.to_owned(), Arc::clone(&orders), Arc::clone(&counts));
        let task = tokio::spawn(accept(listener, line, tap));
        Self { address, orders, counts, task }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// From now on this happens to every connection.
    pub fn set(&self, fault: Fault) {
        self.orders.send_modify(|orders| orders.give(fault, false));
    }

    /// This happens to one connection; as soon as it has ended that one, everything passes again. For faults that end
    /// connections: the others stay until the next order.
    pub fn set_once(&self, fault: Fault) {
        self.orders.send_modify(|orders| orders.give(fault, true));
    }

    /// Cuts the connections that are there now. Those that come are treated as ordered.
    pub fn cut(&self) {
        self.orders.send_modify(|orders| orders.cuts += 1);
    }

    /// What has gone through it so far.
    pub fn counts(&self) -> Counts {
        *self.counts.borrow()
    }

    /// Returns once the counts are as wanted.
    ///
    /// # Panics
    /// When that does not happen within half a minute.
    pub async fn until(&self, wanted: impl FnMut(&Counts) -> bool) -> Counts {
        let mut counts = self.counts.subscribe();
        match tokio::time::timeout(PATIENCE, counts.wait_for(wanted)).await {
            Ok(reached) => *reached.unwrap(),
            Err(_) => panic!("it has come to {:?} only", self.counts()),
        }
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A proxy that was there before may need a moment to leave its port.
async fn bound(port: u16) -> TcpListener {
    loop {
        match TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await {
            Ok(listener) => return listener,
            Err(error) if error.kind() == ErrorKind::AddrInUse => sleep(BUSY).await,
            Err(error) => panic!("the proxy cannot listen on {port}: {error}"),
        }
    }
}

async fn accept(listener: TcpListener, line: Line, tap: impl Fn() -> Tap) {
    // Dropped with this task, it ends the connections.
    let mut lines = JoinSet::new();
    let line = Arc::new(line);
    let run = |client: TcpStream| Arc::clone(&line).run(client, tap());
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((client, _)) => { lines.spawn(run(client)); }
                Err(error) => panic!("the proxy cannot accept: {error}"),
            },
            Some(_) = lines.join_next() => {}
        }
    }
}

/// What stands before `host:port` in a URL, that, and what stands after it.
fn split(url: &str) -> Option<(&str, &str, &str)> {
    let after_scheme = url.find("://")? + 3;
    let end = url[after_scheme..].find(['/', '?']).map_or(url.len(), |length| after_scheme + length);
    let start = url[..end].rfind('@').map_or(after_scheme, |at| at + 1).max(after_scheme);
    let server = &url[start..end];
    server.rsplit_once(':')?.1.parse::<u16>().ok()?;
    Some((&url[..start], server, &url[end..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_split_around_its_server() {
        let amqp = split("amqp://guest:guest@127.0.0.1:5672/%2f");
        assert_eq!(amqp, Some(("amqp://guest:guest@", "127.0.0.1:5672", "/%2f")));
        assert_eq!(split("nats://localhost:4222"), Some(("nats://", "localhost:4222", "")));
        assert_eq!(split("redis://[::1]:6379/0"), Some(("redis://", "[::1]:6379", "/0")));
        assert_eq!(split("redis://127.0.0.1"), None);
        assert_eq!(split("127.0.0.1:6379"), None);
    }
}
