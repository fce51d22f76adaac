//! Tells systemd how it is, where NOTIFY_SOCKET is set.

#[cfg(unix)]
use sd_notify::NotifyState;

pub(super) fn ready() {
    #[cfg(unix)]
    tell(&[NotifyState::Ready]);
}

pub(super) fn reloading() {
    #[cfg(unix)]
    match NotifyState::monotonic_usec_now() {
        Ok(now) => tell(&[NotifyState::Reloading, now]),
        Err(_) => tell(&[NotifyState::Reloading]),
    }
}

pub(super) fn stopping() {
    #[cfg(unix)]
    tell(&[NotifyState::Stopping]);
}

#[cfg(unix)]
fn tell(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::warn!(name: "postrider.notify", %error, "NOTIFY_SOCKET is set, and nobody is there");
    }
}
