//! The messages of xtask. They go to stderr: stdout is for output that a shell can `eval`.

use std::io::Write;

/// Prints one line. Errors are ignored: a closed stderr must not leave a server running.
pub(crate) fn info(line: &str) {
    let _ = writeln!(std::io::stderr(), "xtask: {line}");
}

/// Prints the heading of a part of the run.
pub(crate) fn heading(text: &str) {
    let _ = writeln!(std::io::stderr(), "\n== {text}");
}
