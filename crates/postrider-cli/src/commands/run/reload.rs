//! SIGHUP, which asks the daemon to reload its configuration. Systems without it never reload.

use crate::problem::Problem;

#[cfg(unix)]
pub(super) struct ReloadSignal(tokio::signal::unix::Signal);

#[cfg(unix)]
impl ReloadSignal {
    pub(super) fn listen() -> Result<Self, Problem> {
        use tokio::signal::unix::{SignalKind, signal};
        signal(SignalKind::hangup()).map(Self).map_err(|error| {
            Problem::new(
                format!("cannot install a signal handler: {error}"),
                "run postrider where a process may handle signals",
            )
        })
    }

    pub(super) async fn next(&mut self) {
        self.0.recv().await;
    }
}

#[cfg(not(unix))]
pub(super) struct ReloadSignal;

#[cfg(not(unix))]
impl ReloadSignal {
    #[expect(clippy::unnecessary_wraps, reason = "on Unix it can fail")]
    pub(super) fn listen() -> Result<Self, Problem> {
        Ok(Self)
    }

    pub(super) async fn next(&mut self) {
        std::future::pending().await
    }
}
