//! What the tests of all brokers have in common.

#![allow(dead_code, reason = "each test binary uses a part of it")]

use postrider_servers::{Afterwards, Folder};
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

/// A conversation with a server, in its own protocol.
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

/// Nobody listens there any more.
pub(crate) async fn is_down(url: &str) -> bool {
    soon(TcpStream::connect(address(url))).await.is_err()
}

const HOLDER: &str = "a_holder_of_a_broker";

/// Set where a process is to hold a broker.
const HOLDS: &str = "POSTRIDER_TEST_HOLDS";

/// What the test `a_holder_of_a_broker` does in a process of its own: starts a broker, tells its processes, and waits for its
/// own end. Elsewhere it does nothing.
pub(crate) async fn hold<K: Durable>() {
    if std::env::var_os(HOLDS).is_none() {
        return;
    }
    let broker = Broker::<K>::start().await;
    let ids: Vec<_> = broker.processes().iter().map(ToString::to_string).collect();
    println!("\nholding {}", ids.join(" "));
    std::future::pending::<()>().await;
}

/// Kills a process that holds a broker, and waits until the broker is gone, too.
pub(crate) async fn dies_with_its_holder() {
    // A process that is killed cleans up nothing.
    let folder = Folder::create(Afterwards::Remove).unwrap();
    let mut holder = tokio::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", HOLDER, "--nocapture"])
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

/// A dead process may stay in the table where nobody asks for its result.
fn is_alive(id: u32) -> bool {
    let state = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    let state = state.rsplit(") ").next().unwrap_or_default();
    !state.is_empty() && !state.starts_with(['Z', 'X'])
}
