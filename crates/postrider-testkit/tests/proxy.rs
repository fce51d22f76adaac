//! The faults of the proxy, in front of an echo server.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use postrider_testkit::proxy::{Direction, Fault, FaultProxy};
use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::mpsc,
    time::timeout,
};

const PATIENCE: Duration = Duration::from_secs(30);

/// An echo server that reports the received bytes to the test.
struct Echo {
    address: String,
    connections: Arc<AtomicUsize>,
    heard: mpsc::UnboundedReceiver<Vec<u8>>,
}

impl Echo {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (tell, heard) = mpsc::unbounded_channel();
        let connections = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&connections);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                counter.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(echo(stream, tell.clone()));
            }
        });
        Self { address, connections, heard }
    }

    /// Returns when it has received exactly these bytes.
    async fn hears(&mut self, expected: &[u8]) {
        let mut heard = Vec::new();
        while heard.len() < expected.len() {
            heard.extend(soon(self.heard.recv()).await.unwrap());
        }
        assert_eq!(heard, expected);
    }

    /// Whether it has received bytes that the test has not consumed.
    fn has_heard_more(&mut self) -> bool {
        self.heard.try_recv().is_ok()
    }
}

async fn echo(mut stream: TcpStream, tell: mpsc::UnboundedSender<Vec<u8>>) {
    let mut buffer = [0; 1024];
    while let Ok(length @ 1..) = stream.read(&mut buffer).await {
        tell.send(buffer[..length].to_vec()).ok();
        if stream.write_all(&buffer[..length]).await.is_err() {
            break;
        }
    }
}

async fn soon<T>(future: impl Future<Output = T>) -> T {
    timeout(PATIENCE, future).await.expect("it takes too long")
}

async fn connect(proxy: &FaultProxy) -> TcpStream {
    soon(TcpStream::connect(proxy.address())).await.unwrap()
}

async fn setting() -> (Echo, FaultProxy) {
    let echo = Echo::start().await;
    let proxy = FaultProxy::before(&echo.address).await;
    (echo, proxy)
}

async fn say(client: &mut TcpStream, text: &[u8]) {
    client.write_all(text).await.unwrap();
}

async fn hear(client: &mut TcpStream, expected: &[u8]) {
    let mut heard = vec![0; expected.len()];
    soon(client.read_exact(&mut heard)).await.unwrap();
    assert_eq!(heard, expected);
}

async fn converse(client: &mut TcpStream, text: &[u8]) {
    say(client, text).await;
    hear(client, text).await;
}

/// Every byte that arrives until the connection ends, for whatever reason.
async fn rest(client: &mut TcpStream) -> Vec<u8> {
    let mut heard = Vec::new();
    // A reset is an end as well.
    soon(client.read_to_end(&mut heard)).await.ok();
    heard
}

/// Lets all tasks run, so that an event that must not happen gets its chance.
async fn quiet() {
    for _ in 0..2000 {
        tokio::task::yield_now().await;
    }
}

fn nothing_has_arrived(client: &TcpStream) {
    let error = client.try_read(&mut [0; 1]).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
}

#[tokio::test]
async fn bytes_without_a_fault_are_forwarded_and_counted() {
    let (_echo, proxy) = setting().await;
    let (mut one, mut two) = (connect(&proxy).await, connect(&proxy).await);
    converse(&mut one, b"hello").await;
    converse(&mut two, b"you").await;
    let counts = proxy.until(|counts| counts.to_client == 8).await;
    assert_eq!((counts.connections, counts.open, counts.to_server), (2, 2, 8));
    drop(one);
    let counts = proxy.until(|counts| counts.open == 1).await;
    assert_eq!(counts.connections, 2);
}

#[tokio::test]
async fn a_half_close_is_forwarded_alone() {
    let (_echo, proxy) = setting().await;
    let mut client = connect(&proxy).await;
    say(&mut client, b"the last word").await;
    client.shutdown().await.unwrap();
    assert_eq!(rest(&mut client).await, b"the last word");
}

/// Time is paused except for sleeps, so the measured time is exactly the time that the proxy waits.
#[tokio::test(start_paused = true)]
async fn a_delay_applies_to_both_directions() {
    let (_echo, proxy) = setting().await;
    let mut client = connect(&proxy).await;
    let delay = Duration::from_secs(2);
    proxy.set(Fault::Delay(delay));
    let started = tokio::time::Instant::now();
    say(&mut client, b"slowly").await;
    // Without a timeout, which would sleep as well, and end before the network is done.
    client.read_exact(&mut [0; 6]).await.unwrap();
    assert!(started.elapsed() >= 2 * delay, "{:?}", started.elapsed());
}

#[tokio::test]
async fn a_delay_ends_with_its_order() {
    let (_echo, proxy) = setting().await;
    let mut client = connect(&proxy).await;
    proxy.set(Fault::Delay(Duration::from_secs(3600)));
    say(&mut client, b"at last").await;
    quiet().await;
    proxy.set(Fault::None);
    hear(&mut client, b"at last").await;
}

#[tokio::test]
async fn a_stall_holds_everything_and_loses_nothing() {
    let (mut echo, proxy) = setting().await;
    let mut there = connect(&proxy).await;
    converse(&mut there, b"before").await;
    echo.hears(b"before").await;
    proxy.set(Fault::Stall);
    let mut new = connect(&proxy).await;
    say(&mut there, b"held").await;
    say(&mut new, b"back").await;
    proxy.until(|counts| counts.open == 2).await;
    quiet().await;
    nothing_has_arrived(&there);
    assert!(!echo.has_heard_more());
    assert_eq!(proxy.counts().to_server, 6);
    proxy.set(Fault::None);
    hear(&mut there, b"held").await;
    hear(&mut new, b"back").await;
}

#[tokio::test]
async fn a_cut_ends_the_existing_connections() {
    let (_echo, proxy) = setting().await;
    let mut there = connect(&proxy).await;
    converse(&mut there, b"before").await;
    proxy.cut();
    assert!(rest(&mut there).await.is_empty());
    proxy.until(|counts| counts.open == 0).await;
    converse(&mut connect(&proxy).await, b"after").await;
}

#[tokio::test]
async fn a_stalled_connection_can_be_cut() {
    let (_echo, proxy) = setting().await;
    let mut there = connect(&proxy).await;
    converse(&mut there, b"before").await;
    proxy.set(Fault::Stall);
    say(&mut there, b"held").await;
    proxy.cut();
    assert!(rest(&mut there).await.is_empty());
}

#[tokio::test]
async fn requests_are_cut_at_the_exact_byte() {
    let (mut echo, proxy) = setting().await;
    let mut there = connect(&proxy).await;
    converse(&mut there, b"before").await;
    echo.hears(b"before").await;
    proxy.set(Fault::CutAfter { direction: Direction::ToServer, bytes: 5 });
    say(&mut there, b"spoiled").await;
    echo.hears(b"spoil").await;
    rest(&mut there).await;
    // New connections have their own count.
    let mut new = connect(&proxy).await;
    converse(&mut new, b"four").await;
    echo.hears(b"four").await;
    say(&mut new, b"ty").await;
    echo.hears(b"t").await;
    rest(&mut new).await;
    proxy.until(|counts| counts.open == 0).await;
    assert!(!echo.has_heard_more());
}

#[tokio::test]
async fn replies_are_cut_at_the_exact_byte() {
    let (mut echo, proxy) = setting().await;
    let mut there = connect(&proxy).await;
    converse(&mut there, b"before").await;
    echo.hears(b"before").await;
    proxy.set(Fault::CutAfter { direction: Direction::ToClient, bytes: 5 });
    say(&mut there, b"spoiled").await;
    assert_eq!(rest(&mut there).await, b"spoil");
    echo.hears(b"spoiled").await;
}

#[tokio::test]
async fn a_cut_after_zero_bytes_is_immediate() {
    let (_echo, proxy) = setting().await;
    let mut there = connect(&proxy).await;
    converse(&mut there, b"before").await;
    proxy.set(Fault::CutAfter { direction: Direction::ToClient, bytes: 0 });
    assert!(rest(&mut there).await.is_empty());
}

#[tokio::test]
async fn a_black_hole_discards_bytes_and_keeps_connections_open() {
    let (mut echo, proxy) = setting().await;
    let mut there = connect(&proxy).await;
    converse(&mut there, b"before").await;
    echo.hears(b"before").await;
    proxy.set(Fault::BlackHole);
    let mut new = connect(&proxy).await;
    say(&mut there, b"lost").await;
    // More than the buffers on the way can hold: it is read and discarded.
    soon(new.write_all(&vec![0; 32 << 20])).await.unwrap();
    proxy.until(|counts| counts.open == 2).await;
    quiet().await;
    assert_eq!(echo.connections.load(Ordering::SeqCst), 1);
    // A connection that has lost bytes never forwards more.
    proxy.set(Fault::None);
    say(&mut there, b"lost, too").await;
    say(&mut new, b"lost, too").await;
    quiet().await;
    converse(&mut connect(&proxy).await, b"after").await;
    echo.hears(b"after").await;
    nothing_has_arrived(&there);
    nothing_has_arrived(&new);
    assert_eq!(proxy.counts().open, 3);
    proxy.cut();
    assert!(rest(&mut there).await.is_empty());
    assert!(rest(&mut new).await.is_empty());
    assert!(!echo.has_heard_more());
}

#[tokio::test]
async fn refuse_ends_all_connections() {
    let (mut echo, proxy) = setting().await;
    let mut there = connect(&proxy).await;
    converse(&mut there, b"before").await;
    echo.hears(b"before").await;
    proxy.set(Fault::Refuse);
    assert!(rest(&mut there).await.is_empty());
    assert!(rest(&mut connect(&proxy).await).await.is_empty());
    assert_eq!(proxy.counts().connections, 2);
    assert!(!echo.has_heard_more());
    proxy.set(Fault::None);
    converse(&mut connect(&proxy).await, b"after").await;
}

#[tokio::test]
async fn a_dropped_reply_follows_a_request_that_the_server_received() {
    let (mut echo, proxy) = setting().await;
    let mut there = connect(&proxy).await;
    converse(&mut there, b"before").await;
    echo.hears(b"before").await;
    proxy.set(Fault::DropReply);
    let mut new = connect(&proxy).await;
    for client in [&mut there, &mut new] {
        say(client, b"a request").await;
        assert!(rest(client).await.is_empty());
        echo.hears(b"a request").await;
    }
    assert_eq!(proxy.counts().to_client, 6);
}

/// A server may send first, which is not a reply.
#[tokio::test]
async fn a_greeting_is_not_a_reply() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy = FaultProxy::before(&listener.local_addr().unwrap().to_string()).await;
    proxy.set(Fault::DropReply);
    let mut client = connect(&proxy).await;
    let (mut server, _) = soon(listener.accept()).await.unwrap();
    server.write_all(b"welcome").await.unwrap();
    hear(&mut client, b"welcome").await;
    say(&mut client, b"a request").await;
    let mut request = [0; 9];
    soon(server.read_exact(&mut request)).await.unwrap();
    server.write_all(b"an answer").await.unwrap();
    assert!(rest(&mut client).await.is_empty());
}

#[tokio::test]
async fn a_one_time_fault_ends_one_connection() {
    let (mut echo, proxy) = setting().await;
    let cut = |direction| Fault::CutAfter { direction, bytes: 1 };
    for fault in [Fault::DropReply, Fault::Refuse, cut(Direction::ToServer), cut(Direction::ToClient)] {
        proxy.set_once(fault);
        let mut first = connect(&proxy).await;
        say(&mut first, b"x").await;
        rest(&mut first).await;
        converse(&mut connect(&proxy).await, b"next").await;
        proxy.until(|counts| counts.open == 0).await;
    }
    while echo.has_heard_more() {}
    // Concurrent connections included.
    let mut clients = [connect(&proxy).await, connect(&proxy).await, connect(&proxy).await];
    proxy.until(|counts| counts.open == 3).await;
    proxy.set_once(Fault::Refuse);
    proxy.until(|counts| counts.open == 2).await;
    let mut alive = 0;
    for client in &mut clients {
        // A connection that has ended may accept bytes, but does not reply.
        client.write_all(b"still there").await.ok();
        alive += usize::from(rest_of(client, 11).await);
    }
    assert_eq!(alive, 2);
}

/// Whether this many bytes arrive before the connection ends.
async fn rest_of(client: &mut TcpStream, length: usize) -> bool {
    soon(client.read_exact(&mut vec![0; length])).await.is_ok()
}

#[tokio::test]
async fn an_unreachable_server_ends_the_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    drop(listener);
    let proxy = FaultProxy::before(&address).await;
    assert!(rest(&mut connect(&proxy).await).await.is_empty());
}

#[tokio::test]
async fn dropping_the_proxy_ends_its_connections() {
    let (_echo, proxy) = setting().await;
    let mut client = connect(&proxy).await;
    converse(&mut client, b"before").await;
    drop(proxy);
    assert!(rest(&mut client).await.is_empty());
}

#[tokio::test]
async fn a_url_leads_through_the_proxy() {
    let echo = Echo::start().await;
    let (proxy, url) = FaultProxy::before_url(&format!("amqp://guest:guest@{}/%2f", echo.address)).await;
    assert_eq!(url, format!("amqp://guest:guest@{}/%2f", proxy.address()));
}
