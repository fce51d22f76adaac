//! The signals that stop the program: the first starts a graceful shutdown, the second ends it at once.

use crate::problem::Problem;
use tokio_util::sync::CancellationToken;

#[derive(Debug, Clone, Default)]
pub(crate) struct Signals {
    pub(crate) first: CancellationToken,
    pub(crate) second: CancellationToken,
}

/// Installs handlers for SIGINT and SIGTERM; for Ctrl-C on other systems.
pub(crate) fn listen() -> Result<Signals, Problem> {
    let signals = Signals::default();
    let mut listener = SignalListener::new().map_err(|error| {
        Problem::new(
            format!("cannot install a signal handler: {error}"),
            "run postrider where a process may handle signals",
        )
    })?;
    let received = signals.clone();
    tokio::spawn(async move {
        listener.next().await;
        received.first.cancel();
        listener.next().await;
        received.second.cancel();
    });
    Ok(signals)
}

#[cfg(unix)]
struct SignalListener {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl SignalListener {
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
struct SignalListener;

#[cfg(not(unix))]
impl SignalListener {
    #[expect(clippy::unnecessary_wraps, reason = "on Unix it can fail")]
    fn new() -> std::io::Result<Self> {
        Ok(Self)
    }

    async fn next(&mut self) {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
