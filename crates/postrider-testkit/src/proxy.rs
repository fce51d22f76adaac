//! A TCP proxy in front of a server that injects network faults.
//!
//! The current fault is an order, which can be changed at any time and applies to existing and new connections. Between orders no
//! bytes are lost: bytes that a stall holds arrive when it ends.

mod connection;
mod fault;

pub use fault::{Direction, Fault};

use connection::ConnectionRunner;
use fault::FaultOrder;
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
/// The retry interval for a port that is in use.
const BUSY: Duration = Duration::from_millis(10);

/// Receives the bytes of a client before the server does. Every connection has its own.
pub(crate) type Tap = Box<dyn FnMut(&[u8]) + Send>;

/// The traffic of a proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Connections that clients have opened, including refused ones.
    pub connections: u64,
    /// Connections that are open now.
    pub open: u64,
    /// Bytes forwarded to the server.
    pub to_server: u64,
    /// Bytes forwarded to clients.
    pub to_client: u64,
}

/// Listens on a free port and forwards to a server, with the current fault. Dropping it cuts every connection.
#[derive(Debug)]
pub struct FaultProxy {
    address: SocketAddr,
    server: watch::Sender<String>,
    order: Arc<watch::Sender<FaultOrder>>,
    counts: Arc<watch::Sender<Counts>>,
    task: JoinHandle<()>,
}

impl FaultProxy {
    /// Starts a proxy in front of the server at `host:port`, which need not run yet.
    pub async fn before(server: &str) -> Self {
        Self::tapped(server, || Box::new(|_| ())).await
    }

    /// Starts a proxy in front of the server at `host:port`, on a given port: for servers that advertise an address to their
    /// clients.
    ///
    /// # Panics
    /// When the port stays in use.
    pub async fn on(port: u16, server: &str) -> Self {
        Self::listen(port, server, || Box::new(|_| ())).await
    }

    /// Starts a proxy in front of the server of a URL, which must have a port, and returns the URL through the proxy.
    ///
    /// # Panics
    /// When the URL has no port.
    pub async fn before_url(url: &str) -> (Self, String) {
        let (start, server, end) = split(url).unwrap_or_else(|| panic!("{url} names no host and port"));
        let proxy = Self::before(server).await;
        let through = format!("{start}{}{end}", proxy.address);
        (proxy, through)
    }

    pub(crate) async fn tapped(server: &str, tap: impl Fn() -> Tap + Send + Sync + 'static) -> Self {
        Self::listen(0, server, tap).await
    }

    async fn listen(port: u16, server: &str, tap: impl Fn() -> Tap + Send + Sync + 'static) -> Self {
        let listener =
            tokio::time::timeout(PATIENCE, bind(port)).await.expect("another process has the port");
        let address = listener.local_addr().unwrap();
        let order = Arc::new(watch::Sender::new(FaultOrder::default()));
        let counts = Arc::new(watch::Sender::new(Counts::default()));
        let (server, current_server) = watch::channel(server.to_owned());
        let runner = ConnectionRunner::new(current_server, Arc::clone(&order), Arc::clone(&counts));
        let task = tokio::spawn(accept(listener, runner, tap));
        Self { address, server, order, counts, task }
    }

    /// The address it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Applies a fault to every connection from now on.
    pub fn set(&self, fault: Fault) {
        self.order.send_modify(|order| order.replace(fault, false));
    }

    /// Applies a fault until it has ended one connection; then everything is forwarded again. For faults that end connections: the
    /// others stay affected until the next order.
    pub fn set_once(&self, fault: Fault) {
        self.order.send_modify(|order| order.replace(fault, true));
    }

    /// Forwards new connections to the server at `host:port`, as an address does that moves at a failover. Existing connections stay.
    pub fn redirect(&self, server: &str) {
        self.server.send_replace(server.to_owned());
    }

    /// Cuts the existing connections. The current fault applies to new ones.
    pub fn cut(&self) {
        self.order.send_modify(|order| order.cuts += 1);
    }

    /// The traffic so far.
    pub fn counts(&self) -> Counts {
        *self.counts.borrow()
    }

    /// Returns when the counts satisfy `wanted`.
    ///
    /// # Panics
    /// When that does not happen within half a minute.
    pub async fn until(&self, wanted: impl FnMut(&Counts) -> bool) -> Counts {
        let mut counts = self.counts.subscribe();
        match tokio::time::timeout(PATIENCE, counts.wait_for(wanted)).await {
            Ok(reached) => *reached.unwrap(),
            Err(_) => panic!("timed out at {:?}", self.counts()),
        }
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A previous proxy may need a moment to release its port.
async fn bind(port: u16) -> TcpListener {
    loop {
        match TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await {
            Ok(listener) => return listener,
            Err(error) if error.kind() == ErrorKind::AddrInUse => sleep(BUSY).await,
            Err(error) => panic!("the proxy cannot listen on {port}: {error}"),
        }
    }
}

async fn accept(listener: TcpListener, runner: ConnectionRunner, tap: impl Fn() -> Tap) {
    // Dropped with this task, which ends the connections.
    let mut connections_running = JoinSet::new();
    let runner = Arc::new(runner);
    let run = |client: TcpStream| Arc::clone(&runner).run(client, tap());
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((client, _)) => { connections_running.spawn(run(client)); }
                Err(error) => panic!("the proxy cannot accept: {error}"),
            },
            Some(_) = connections_running.join_next() => {}
        }
    }
}

/// Splits a URL into the part before `host:port`, `host:port`, and the part after it.
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
