//! A pseudo-terminal that the program writes to.

use nix::pty::{Winsize, openpty};
use std::{
    fs::File,
    io::Read,
    process::{Command, ExitStatus},
};

/// Runs the program on a terminal of 30 rows and 90 columns, and returns its output and exit status.
pub(crate) fn on_a_terminal(mut command: Command) -> (String, ExitStatus) {
    let size = Winsize { ws_row: 30, ws_col: 90, ws_xpixel: 0, ws_ypixel: 0 };
    let terminal = openpty(&size, None).unwrap();
    let error = terminal.slave.try_clone().unwrap();
    command.stdout(terminal.slave).stderr(error).env("TERM", "xterm");
    let mut child = command.spawn().unwrap();
    // Closes this end of the terminal, so that reading ends with the program.
    drop(command);
    let mut seen = Vec::new();
    // Linux reports the closing of the other end as an error.
    let _ = File::from(terminal.master).read_to_end(&mut seen);
    (String::from_utf8(seen).unwrap(), child.wait().unwrap())
}
