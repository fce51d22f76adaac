//! The quick start of the daemon's guide, run as written.

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use support::readme;
use tempfile::tempdir;

#[test]
fn quick_start_of_the_daemon_guide_works_as_written() {
    let folder = tempdir().unwrap();
    let guide = include_str!("../../../docs/guides/daemon.md");
    // The default port may be taken.
    readme::walk(guide, "## Quick start", folder.path(), &[("POSTRIDER_HTTP_LISTEN", "off")]);
}
