//! Counts round trips on the wire: a proxy between client and server that counts the server's `ReadyForQuery` messages. Runs
//! through it are not timed.

use anyhow::Result;
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, copy},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};

/// A counting proxy. It stops when dropped.
#[derive(Debug)]
pub(crate) struct Wire {
    port: u16,
    trips: Arc<AtomicU64>,
    relay: JoinHandle<()>,
}

impl Wire {
    /// Starts a proxy to a server.
    pub(crate) async fn to(host: &str, port: u16) -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let own_port = listener.local_addr()?.port();
        let trips = Arc::new(AtomicU64::new(0));
        let (count, server) = (Arc::clone(&trips), (host.to_owned(), port));
        let relay = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (count, server) = (Arc::clone(&count), server.clone());
                // The client reports a broken connection.
                tokio::spawn(async move { carry(client, server, &count).await.ok() });
            }
        });
        Ok(Self { port: own_port, trips, relay })
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// The number of `ReadyForQuery` messages so far.
    pub(crate) fn trips(&self) -> u64 {
        self.trips.load(Ordering::Relaxed)
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.relay.abort();
    }
}

async fn carry(client: TcpStream, server: (String, u16), trips: &AtomicU64) -> Result<()> {
    let server = TcpStream::connect((server.0.as_str(), server.1)).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let sending = tokio::spawn(async move {
        copy(&mut from_client, &mut to_server).await.ok();
        to_server.shutdown().await.ok()
    });
    let mut frames = Frames::default();
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let length = from_server.read(&mut buffer).await?;
        if length == 0 {
            break;
        }
        // Counted before the client can receive it.
        trips.fetch_add(frames.ready(&buffer[..length]), Ordering::Relaxed);
        to_client.write_all(&buffer[..length]).await?;
    }
    sending.abort();
    Ok(())
}

/// The server's messages: a type, a length that includes itself, a body.
#[derive(Debug, Default)]
struct Frames {
    header: Vec<u8>,
    body: usize,
}

impl Frames {
    /// The number of `ReadyForQuery` messages in these bytes.
    fn ready(&mut self, mut bytes: &[u8]) -> u64 {
        let mut ready = 0;
        while !bytes.is_empty() {
            if self.body > 0 {
                let skipped = self.body.min(bytes.len());
                self.body -= skipped;
                bytes = &bytes[skipped..];
                continue;
            }
            self.header.push(bytes[0]);
            bytes = &bytes[1..];
            if let [kind, a, b, c, d] = self.header[..] {
                ready += u64::from(kind == b'Z');
                let length = u32::from_be_bytes([a, b, c, d]).saturating_sub(4);
                self.body = usize::try_from(length).unwrap_or(usize::MAX);
                self.header.clear();
            }
        }
        ready
    }
}

#[cfg(test)]
mod tests {
    use super::Frames;

    #[test]
    fn ready_is_counted_for_any_split_of_the_bytes() {
        let stream = b"D\0\0\0\x07ZZZC\0\0\0\x04Z\0\0\0\x05IZ\0\0\0\x05T";
        for size in 1..stream.len() {
            let mut frames = Frames::default();
            let ready: u64 = stream.chunks(size).map(|chunk| frames.ready(chunk)).sum();
            assert_eq!(ready, 2, "in pieces of {size}");
        }
    }
}
