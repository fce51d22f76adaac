//! What xtask itself says. It goes to stderr: stdout belongs to what a shell may `eval`.

use std::io::Write;

/// Prints one line. A closed stderr is no reason to leave a server running, so failure is ignored.
pub(crate) fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "xtask: {line}");
}

/// Prints a line that opens a part of the run.
pub(crate) fn heading(text: &str) {
    let _ = writeln!(std::io::stderr(), "\n== {text}");
}
