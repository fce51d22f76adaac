//! Counts the round trips of a PostgreSQL client: the cost of its statements on a network.

use crate::proxy::{FaultProxy, Tap};
use sqlx::{ConnectOptions, postgres::PgConnectOptions};
use std::{
    str::FromStr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

/// A proxy that counts round trips.
#[derive(Debug)]
pub struct CountingProxy {
    proxy: FaultProxy,
    round_trips: Arc<AtomicUsize>,
}

impl CountingProxy {
    /// Starts a proxy in front of the server of a database, and returns the URL of the database through it.
    pub async fn before_database(url: &str) -> (Self, String) {
        let options = PgConnectOptions::from_str(url).unwrap();
        let round_trips = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&round_trips);
        let tap = move || -> Tap {
            let mut requests = Requests::new(Arc::clone(&counter));
            Box::new(move |bytes| requests.read(bytes))
        };
        let server = format!("{}:{}", options.get_host(), options.get_port());
        let proxy = FaultProxy::tapped(&server, tap).await;
        let through = options.host(&proxy.address().ip().to_string()).port(proxy.address().port());
        (Self { proxy, round_trips }, through.to_url_lossy().to_string())
    }

    /// The proxy, for injecting faults.
    pub fn proxy(&self) -> &FaultProxy {
        &self.proxy
    }

    /// The number of round trips so far.
    pub fn round_trips(&self) -> usize {
        self.round_trips.load(Ordering::SeqCst)
    }
}

/// No start-up message is as short.
const TLS_REQUEST_LENGTH: usize = 8;

/// Splits the bytes of a client into messages: a type, the length of the rest, the rest.
#[derive(Debug)]
struct Requests {
    round_trips: Arc<AtomicUsize>,
    head: Vec<u8>,
    /// The messages before and at the start have no type.
    head_length: usize,
    body_left: usize,
}

impl Requests {
    fn new(round_trips: Arc<AtomicUsize>) -> Self {
        Self { round_trips, head: Vec::new(), head_length: 4, body_left: 0 }
    }

    fn read(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let skipped = self.body_left.min(bytes.len());
            self.body_left -= skipped;
            bytes = &bytes[skipped..];
            let (head, rest) = bytes.split_at(bytes.len().min(self.head_length - self.head.len()));
            self.head.extend_from_slice(head);
            bytes = rest;
            if self.head.len() == self.head_length {
                self.finish_head();
            }
        }
    }

    fn finish_head(&mut self) {
        let (kind, length) = self.head.split_at(self.head_length - 4);
        // After a Sync or a simple Query the client waits: one round trip.
        if matches!(kind, b"S" | b"Q") {
            self.round_trips.fetch_add(1, Ordering::SeqCst);
        }
        let length = length.iter().fold(0, |length, byte| length << 8 | usize::from(*byte));
        // The length counts itself.
        self.body_left = length.saturating_sub(4);
        // A request for TLS precedes the start-up message, and has no type, either.
        let is_tls_request = self.head_length == 4 && length == TLS_REQUEST_LENGTH;
        self.head_length = if is_tls_request { 4 } else { 5 };
        self.head.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trips_are_counted_for_any_split_of_the_bytes() {
        let tls = [&8_u32.to_be_bytes()[..], b"SQSQ"].concat();
        let startup = [&16_u32.to_be_bytes()[..], b"SQSQSQSQSQSQ"].concat();
        let requests = b"Q\0\0\0\x08SSSSP\0\0\0\x06QQB\0\0\0\x04S\0\0\0\x04S\0\0\0\x04X\0\0\0\x04";
        let all = [&tls[..], &startup, requests].concat();
        for size in 1..=all.len() {
            let counter = Arc::new(AtomicUsize::new(0));
            let mut reader = Requests::new(Arc::clone(&counter));
            all.chunks(size).for_each(|bytes| reader.read(bytes));
            assert_eq!(counter.load(Ordering::SeqCst), 3, "in pieces of {size}");
        }
    }
}
