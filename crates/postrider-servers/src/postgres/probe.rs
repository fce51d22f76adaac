//! Identifies a server with one query, in a minimal client for PostgreSQL's protocol.
//!
//! Fetched builds have no `psql`, and an open port proves little: it opens before the server accepts
//! queries, and after a lost race for the port it belongs to another server.

use std::io::{self, Read, Write};
use std::path::PathBuf;

use crate::ports::connect;

const PROTOCOL: i32 = 3 << 16;
const MAX_MESSAGE_BYTES: usize = 1 << 16;
const QUERY: &str = "SELECT current_setting('server_version') || ' ' || current_setting('data_directory')";

/// The version and data folder that a server reports.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) version: String,
    pub(super) data: PathBuf,
}

/// Connects as the superuser and queries the identity.
pub(super) fn identify(port: u16) -> io::Result<Identity> {
    let mut stream = connect(port)?;

    let mut greeting = PROTOCOL.to_be_bytes().to_vec();
    greeting.extend_from_slice(b"user\0postgres\0database\0postgres\0\0");
    send(&mut stream, None, &greeting)?;
    reply(&mut stream)?;
    send(&mut stream, Some(b'Q'), format!("{QUERY}\0").as_bytes())?;
    let identity = reply(&mut stream)?;
    send(&mut stream, Some(b'X'), &[])?;
    identity.as_deref().and_then(parse).ok_or_else(|| unexpected("no identity"))
}

fn send(stream: &mut impl Write, kind: Option<u8>, body: &[u8]) -> io::Result<()> {
    let length = i32::try_from(body.len() + 4).map_err(io::Error::other)?;
    let mut message = Vec::from_iter(kind);
    message.extend_from_slice(&length.to_be_bytes());
    message.extend_from_slice(body);
    stream.write_all(&message)
}

/// Reads until the server is ready for the next query; returns the first column of the last row.
fn reply(stream: &mut impl Read) -> io::Result<Option<String>> {
    let mut value = None;
    loop {
        let mut head = [0; 5];
        stream.read_exact(&mut head)?;
        let [kind, length @ ..] = head;
        let length = usize::try_from(i32::from_be_bytes(length)).ok().and_then(|n| n.checked_sub(4));
        let length =
            length.filter(|n| *n <= MAX_MESSAGE_BYTES).ok_or_else(|| unexpected("not PostgreSQL"))?;
        let mut body = vec![0; length];
        stream.read_exact(&mut body)?;
        match kind {
            b'Z' => return Ok(value),
            b'E' => return Err(io::Error::other(error_text(&body))),
            b'R' if body.iter().any(|byte| *byte != 0) => {
                return Err(unexpected("the server asks for a password"));
            }
            // Two bytes count the columns, four give the first one's length.
            b'D' => value = body.get(6..).map(|text| String::from_utf8_lossy(text).into_owned()),
            _ => {}
        }
    }
}

/// The message among an error's fields, each a letter and a text that ends with a zero.
fn error_text(body: &[u8]) -> String {
    let message = body.split(|byte| *byte == 0).find_map(|field| field.strip_prefix(b"M"));
    String::from_utf8_lossy(message.unwrap_or(b"error without a message")).into_owned()
}

fn parse(identity: &str) -> Option<Identity> {
    // Packagers add their own version: `15.18 (Debian 15.18-0+deb12u1) /tmp/…`.
    let version = identity.split(' ').next()?.to_string();
    let data = identity.find(" /").map(|start| PathBuf::from(&identity[start + 1..]))?;
    Some(Identity { version, data })
}

fn unexpected(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u8, body: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        send(&mut bytes, Some(kind), body).unwrap();
        bytes
    }

    #[test]
    fn an_identity_is_a_version_and_a_folder() {
        let identity = parse("15.18 (Debian 15.18-0+deb12u1) /tmp/a b/data").unwrap();
        assert_eq!(identity, Identity { version: "15.18".into(), data: "/tmp/a b/data".into() });
        assert_eq!(parse("15.18"), None);
    }

    #[test]
    fn the_reply_is_the_row_before_ready() {
        let mut row = vec![0, 1, 0, 0, 0, 2];
        row.extend_from_slice(b"ok");
        let stream = [message(b'T', b"ignored"), message(b'D', &row), message(b'Z', b"I")].concat();
        assert_eq!(reply(&mut stream.as_slice()).unwrap().as_deref(), Some("ok"));
    }

    #[test]
    fn a_server_that_is_starting_is_an_error() {
        let stream = message(b'E', b"SFATAL\0C57P03\0Mthe database system is starting up\0\0");
        let error = reply(&mut stream.as_slice()).unwrap_err();
        assert_eq!(error.to_string(), "the database system is starting up");
    }

    #[test]
    fn another_protocol_is_an_error() {
        let error = reply(&mut b"HTTP/1.1 400 Bad Request".as_slice()).unwrap_err();
        assert_eq!(error.to_string(), "not PostgreSQL");
    }
}
