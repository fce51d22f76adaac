//! The signals that ask the program to stop: the first to end well, the second to end at once.

use crate::problem::Problem;
use tokio_util::sync::CancellationToken;

#[derive(Debug, Clone, Default)]
pub(crate) struct Signals {
    pub(crate) first: CancellationToken,
    pub(crate) second: CancellationToken,
}

/// Listens from now on, for SIGINT and SIGTERM; on other systems for Ctrl-C.
pub(crate) fn listen() -> Result<Signals, Problem> {
    let signals = Signals::default();
    let mut ear = Ear::new().map_err(|error| {
        Problem::new(
            format!("signals cannot be listened for: {error}"),
            "run it where a program may handle signals",
        )
    })?;
    let heard = signals.clone();
    tokio::spawn(async move {
        ear.next().await;
        heard.first.cancel();
        ear.next().await;
        heard.second.cancel();
    });
    Ok(signals)
}

#[cfg(unix)]
struct Ear {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl Ear {
    fn new() -> std::io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

#[cfg(not(unix))]
struct Ear;

#[cfg(not(unix))]
impl Ear {
    #[expect(clippy::unnecessary_wraps, reason = "elsewhere it can fail")]
    fn new() -> std::io::Result<Self> {
        Ok(Self)
    }

    async fn next(&mut self) {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
