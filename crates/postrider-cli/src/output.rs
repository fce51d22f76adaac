//! Output on stdout: tables for people, JSON for programs.

use crate::problem::{Code, Problem};
use serde::Serialize;
use std::io::{self, Write};

/// The version of every JSON object. Within a version, keys are only added.
const VERSION: u8 = 1;

#[derive(Serialize)]
struct VersionedOutput<'v, T> {
    version: u8,
    #[serde(flatten)]
    value: &'v T,
}

/// Writes one JSON object on one line.
pub(crate) fn json(value: &impl Serialize) -> Result<(), Problem> {
    let text = serde_json::to_string(&VersionedOutput { version: VERSION, value });
    check(text.map_err(io::Error::from).and_then(|text| writeln!(io::stdout(), "{text}")))
}

/// Writes text, with exactly one newline at its end.
pub(crate) fn text(text: &str) -> Result<(), Problem> {
    check(writeln!(io::stdout(), "{}", text.strip_suffix('\n').unwrap_or(text)))
}

/// Writes bytes as they are.
pub(crate) fn bytes(bytes: &[u8]) -> Result<(), Problem> {
    check(io::stdout().write_all(bytes))
}

fn check(result: io::Result<()>) -> Result<(), Problem> {
    match result {
        // The reader, such as `head`, has closed the pipe on purpose.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other.map_err(|error| {
            Problem::new(format!("cannot write to stdout: {error}"), "open or redirect stdout")
                .with_code(Code::Output)
        }),
    }
}
