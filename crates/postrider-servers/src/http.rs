//! A minimal HTTP client for health checks on the loopback interface.

use std::io::{Read, Write};

use anyhow::{Result, bail};

use crate::ports::connect;

/// The reply to a GET, with its headers. Every status but `200` is an error.
pub(crate) fn get(port: u16, path: &str) -> Result<String> {
    let mut stream = connect(port)?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n")?;
    let mut reply = Vec::new();
    stream.read_to_end(&mut reply)?;
    let reply = String::from_utf8_lossy(&reply).into_owned();
    let status = reply.lines().next().unwrap_or_default();
    if status.split(' ').nth(1) != Some("200") {
        bail!("GET {path}: `{status}`");
    }
    Ok(reply)
}
