//! Service notifications for systemd, sent if NOTIFY_SOCKET is set.

#[cfg(unix)]
use sd_notify::NotifyState;

pub(super) fn ready() {
    #[cfg(unix)]
    notify(&[NotifyState::Ready]);
}

pub(super) fn reloading() {
    #[cfg(unix)]
    match NotifyState::monotonic_usec_now() {
        Ok(now) => notify(&[NotifyState::Reloading, now]),
        Err(_) => notify(&[NotifyState::Reloading]),
    }
}

pub(super) fn stopping() {
    #[cfg(unix)]
    notify(&[NotifyState::Stopping]);
}

#[cfg(unix)]
fn notify(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::warn!(name: "postrider.systemd_notify_failed", %error, "systemd not notified: NOTIFY_SOCKET is set, but sending failed");
    }
}
