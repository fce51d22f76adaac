//! A proxy before a PostgreSQL server that counts round trips, which is what a statement costs on a network, and that can fall
//! silent, as a network can.

use sqlx::{ConnectOptions, postgres::PgConnectOptions};
use std::{
    io,
    net::SocketAddr,
    str::FromStr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::watch,
    task::JoinHandle,
};

/// Listens on a free port and passes everything on.
#[derive(Debug)]
pub struct CountingProxy {
    address: SocketAddr,
    round_trips: Arc<AtomicUsize>,
    silent: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl CountingProxy {
    /// Stands before the server at `host:port`.
    pub async fn before(server: String) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let round_trips = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&round_trips);
        let (silent, silence) = watch::channel(false);
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                // A connection that breaks ends alone.
                tokio::spawn(pass(client, server.clone(), Arc::clone(&counter), silence.clone()));
            }
        });
        Self { address, round_trips, silent, task }
    }

    /// Stands before the server of a database, and answers with the way to that database through it.
    pub async fn before_database(url: &str) -> (Self, String) {
        let options = PgConnectOptions::from_str(url).unwrap();
        let proxy = Self::before(format!("{}:{}", options.get_host(), options.get_port())).await;
        let through = options.host(&proxy.address.ip().to_string()).port(proxy.address.port());
        (proxy, through.to_url_lossy().to_string())
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// From now on nothing that the server says arrives, and no connection ends: a network that swallows everything.
    pub fn swallow(&self) {
        self.silent.send_replace(true);
    }

    /// How often a client has waited for the server so far.
    pub fn round_trips(&self) -> usize {
        self.round_trips.load(Ordering::SeqCst)
    }
}

impl Drop for CountingProxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn pass(
    client: TcpStream,
    server: String,
    counter: Arc<AtomicUsize>,
    mut silence: watch::Receiver<bool>,
) -> io::Result<()> {
    let server = TcpStream::connect(server).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (from_client, mut to_client) = client.into_split();
    let (mut from_server, to_server) = server.into_split();
    let up = tokio::spawn(count(from_client, to_server, counter));
    let is_silent = async { silence.wait_for(|is_silent| *is_silent).await.is_ok() };
    let is_silent = tokio::select! {
        copied = tokio::io::copy(&mut from_server, &mut to_client) => { copied?; false }
        is_silent = is_silent => is_silent,
    };
    if is_silent {
        // Both ends stay open.
        std::future::pending::<()>().await;
    }
    up.abort();
    Ok(())
}

/// After a Sync or a simple Query the client waits: one round trip.
async fn count(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, counter: Arc<AtomicUsize>) -> io::Result<()> {
    // The start-up message has no type.
    let mut startup = vec![0; 4];
    from.read_exact(&mut startup).await?;
    forward_body(&mut from, &mut to, &startup).await?;
    loop {
        let mut head = [0; 5];
        from.read_exact(&mut head).await?;
        if matches!(head[0], b'S' | b'Q') {
            counter.fetch_add(1, Ordering::SeqCst);
        }
        to.write_all(&head[..1]).await?;
        forward_body(&mut from, &mut to, &head[1..]).await?;
    }
}

async fn forward_body(from: &mut OwnedReadHalf, to: &mut OwnedWriteHalf, length: &[u8]) -> io::Result<()> {
    let len = u32::from_be_bytes(length.try_into().map_err(io::Error::other)?) as usize;
    let mut body = vec![0; len.saturating_sub(4)];
    from.read_exact(&mut body).await?;
    to.write_all(length).await?;
    to.write_all(&body).await
}
