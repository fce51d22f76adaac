//! Helpers of the broker tests.

#![allow(dead_code, reason = "each test binary uses a part of it")]

use postrider_servers::{Cleanup, TempFolder};
use postrider_testkit::broker::{Broker, Durable};
use std::{
    future::Future,
    process::Stdio,
    time::{Duration, Instant},
};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
    time::timeout,
};

const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) async fn soon<T>(future: impl Future<Output = T>) -> T {
    timeout(PATIENCE, future).await.expect("it takes too long")
}

/// `host:port` of a URL.
pub(crate) fn address(url: &str) -> &str {
    let rest = url.split_once("://").unwrap().1;
    let authority = rest.split('/').next().unwrap();
    authority.rsplit('@').next().unwrap()
}

/// A connection to a server, in its own protocol.
pub(crate) struct Talk(BufReader<TcpStream>);

impl Talk {
    pub(crate) async fn with(url: &str) -> Self {
        Self(BufReader::new(soon(TcpStream::connect(address(url))).await.unwrap()))
    }

    pub(crate) async fn say(&mut self, words: impl AsRef<[u8]>) {
        self.0.write_all(words.as_ref()).await.unwrap();
    }

    pub(crate) async fn line(&mut self) -> String {
        let mut line = String::new();
        soon(self.0.read_line(&mut line)).await.unwrap();
        line.trim_end().to_owned()
    }

    pub(crate) async fn bytes(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        soon(self.0.read_exact(&mut bytes)).await.unwrap();
        bytes
    }

    pub(crate) async fn rest(mut self) -> String {
        let mut text = String::new();
        soon(self.0.read_to_string(&mut text)).await.unwrap();
        text
    }
}

/// Waits until no server listens on the port.
pub(crate) async fn is_down(url: &str) -> bool {
    soon(TcpStream::connect(address(url))).await.is_err()
}

const HOLDER: &str = "a_holder_of_a_broker";

/// Set in a process that is to hold a broker.
const HOLDS: &str = "POSTRIDER_TEST_HOLDS";

/// The body of the test `a_holder_of_a_broker` in a child process: starts a broker, prints its process ids, and waits to be killed.
/// Elsewhere it does nothing.
pub(crate) async fn hold<K: Durable>() {
    if std::env::var_os(HOLDS).is_none() {
        return;
    }
    let broker = Broker::<K>::start().await;
    let ids: Vec<_> = broker.processes().iter().map(ToString::to_string).collect();
    println!("\nholding {}", ids.join(" "));
    std::future::pending::<()>().await;
}

/// Kills a process that holds a broker, and waits until the broker is gone as well.
pub(crate) async fn dies_with_its_holder() {
    // A killed process cleans up nothing.
    let folder = TempFolder::create(Cleanup::Remove).unwrap();
    let mut holder = tokio::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", HOLDER, "--ignored", "--nocapture"])
        .env(HOLDS, "")
        .env("TMPDIR", folder.path())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(holder.stdout.take().unwrap()).lines();
    let ids: Vec<u32> = loop {
        let line = soon(lines.next_line()).await.unwrap().expect("it ended without a broker");
        if let Some(ids) = line.strip_prefix("holding ") {
            break ids.split(' ').map(|id| id.parse().unwrap()).collect();
        }
    };
    assert!(ids.iter().all(|id| is_alive(*id)), "{ids:?}");
    holder.kill().await.unwrap();
    let deadline = Instant::now() + PATIENCE;
    while ids.iter().any(|id| is_alive(*id)) {
        assert!(Instant::now() < deadline, "they outlive it: {ids:?}");
        tokio::task::yield_now().await;
    }
}

/// A dead process stays in the process table until its parent reaps it.
fn is_alive(id: u32) -> bool {
    let state = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    let state = state.rsplit(") ").next().unwrap_or_default();
    !state.is_empty() && !state.starts_with(['Z', 'X'])
}
