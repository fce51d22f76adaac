//! What the README says about the program, as it stands there.

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use support::readme;
use tempfile::tempdir;

#[test]
fn the_first_steps_work_as_written() {
    let folder = tempdir().unwrap();
    // Where somebody else has the port already, the commands are the same.
    readme::walk("## Run it beside your database", folder.path(), &[("POSTRIDER_HTTP_LISTEN", "off")]);
}
