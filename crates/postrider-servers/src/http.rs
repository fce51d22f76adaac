//! Just enough of HTTP to ask a server on this machine how it is.

use std::io::{Read, Write};

use anyhow::{Result, bail};

use crate::ports::connect;

/// The answer to a GET, with its head. Everything but `200` is an error.
pub(crate) fn get(port: u16, path: &str) -> Result<String> {
    let mut stream = connect(port)?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let status = answer.lines().next().unwrap_or_default();
    if status.split(' ').nth(1) != Some("200") {
        bail!("{path} is answered with `{status}`");
    }
    Ok(answer)
}
