//! SIGHUP, where there is one.

use crate::problem::Problem;

#[cfg(unix)]
pub(super) struct Hangup(tokio::signal::unix::Signal);

#[cfg(unix)]
impl Hangup {
    pub(super) fn listen() -> Result<Self, Problem> {
        use tokio::signal::unix::{SignalKind, signal};
        signal(SignalKind::hangup()).map(Self).map_err(|error| {
            Problem::new(
                format!("signals cannot be listened for: {error}"),
                "run it where a program may handle signals",
            )
        })
    }

    pub(super) async fn next(&mut self) {
        self.0.recv().await;
    }
}

#[cfg(not(unix))]
pub(super) struct Hangup;

#[cfg(not(unix))]
impl Hangup {
    #[expect(clippy::unnecessary_wraps, reason = "elsewhere it can fail")]
    pub(super) fn listen() -> Result<Self, Problem> {
        Ok(Self)
    }

    pub(super) async fn next(&mut self) {
        std::future::pending().await
    }
}
