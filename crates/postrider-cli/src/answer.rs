//! What is written on stdout: tables for people, JSON for programs.

use crate::problem::{Code, Problem};
use serde::Serialize;
use std::io::{self, Write};

/// The version of every object for programs. A key is only ever added to it.
const VERSION: u8 = 1;

#[derive(Serialize)]
struct Versioned<'v, T> {
    version: u8,
    #[serde(flatten)]
    value: &'v T,
}

/// Writes one object in one line.
pub(crate) fn json(value: &impl Serialize) -> Result<(), Problem> {
    let text = serde_json::to_string(&Versioned { version: VERSION, value });
    written(text.map_err(io::Error::from).and_then(|text| writeln!(io::stdout(), "{text}")))
}

/// Writes text as it is, with one end of line.
pub(crate) fn text(text: &str) -> Result<(), Problem> {
    written(writeln!(io::stdout(), "{}", text.strip_suffix('\n').unwrap_or(text)))
}

/// Writes bytes as they are.
pub(crate) fn bytes(bytes: &[u8]) -> Result<(), Problem> {
    written(io::stdout().write_all(bytes))
}

fn written(result: io::Result<()>) -> Result<(), Problem> {
    match result {
        // Whoever reads it, `head` for one, has seen enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other.map_err(|error| {
            Problem::new(format!("the answer cannot be written: {error}"), "give it an open stdout")
                .coded(Code::Output)
        }),
    }
}
