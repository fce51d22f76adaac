//! Opens an AMQP 0-9-1 connection with a minimal client: the server greets, authenticates the client, negotiates limits, and
//! opens the virtual host.

use std::io::{self, Read, Write};

use crate::ports::connect;

const LARGEST_FRAME: usize = 1 << 17;
const FRAME_END: u8 = 0xCE;

/// Methods of the class `connection`.
const START: u16 = 10;
const START_OK: u16 = 11;
const TUNE: u16 = 30;
const TUNE_OK: u16 = 31;
const OPEN: u16 = 40;
const OPEN_OK: u16 = 41;
const CLOSE: u16 = 50;
const CLOSE_OK: u16 = 51;

/// The version and cluster name that a server reports.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) version: String,
    pub(super) cluster: String,
}

/// Opens and closes a connection.
pub(super) fn identify(port: u16) -> io::Result<Identity> {
    let mut stream = connect(port)?;
    stream.write_all(b"AMQP\0\0\x09\x01")?;
    let greeting = receive(&mut stream, START)?;
    let property = |name| property(&greeting, name).ok_or_else(|| unexpected("it does not tell who it is"));
    let identity = Identity { version: property("version")?, cluster: property("cluster_name")? };
    // No properties; then the authentication mechanism, the credentials and the language.
    send(&mut stream, START_OK, b"\0\0\0\0\x05PLAIN\0\0\0\x0c\0guest\0guest\x05en_US")?;
    let limits = receive(&mut stream, TUNE)?;
    send(&mut stream, TUNE_OK, &limits)?;
    send(&mut stream, OPEN, b"\x01/\0\0")?;
    receive(&mut stream, OPEN_OK)?;
    send(&mut stream, CLOSE, b"\0\xc8\x03bye\0\0\0\0")?;
    receive(&mut stream, CLOSE_OK)?;
    Ok(identity)
}

fn send(stream: &mut impl Write, method: u16, arguments: &[u8]) -> io::Result<()> {
    let length = u32::try_from(arguments.len() + 4).map_err(io::Error::other)?;
    // A method, on the connection itself; then its class.
    let mut frame = vec![1, 0, 0];
    frame.extend_from_slice(&length.to_be_bytes());
    frame.extend_from_slice(&10_u16.to_be_bytes());
    frame.extend_from_slice(&method.to_be_bytes());
    frame.extend_from_slice(arguments);
    frame.push(FRAME_END);
    stream.write_all(&frame)
}

/// Receives the expected method and returns its arguments.
fn receive(stream: &mut impl Read, method: u16) -> io::Result<Vec<u8>> {
    let mut head = [0; 7];
    stream.read_exact(&mut head)?;
    let [kind, _, _, length @ ..] = head;
    let length = u32::from_be_bytes(length) as usize;
    if kind != 1 || !(4..=LARGEST_FRAME).contains(&length) {
        return Err(unexpected("not AMQP 0-9-1"));
    }
    let mut body = vec![0; length + 1];
    stream.read_exact(&mut body)?;
    let expected = [10_u16.to_be_bytes(), method.to_be_bytes()].concat();
    if body.pop() != Some(FRAME_END) || body[..4] != expected {
        return Err(unexpected("another method than the expected one"));
    }
    Ok(body.split_off(4))
}

/// A text among the properties: the length of its name, its name, `S`, its length, the text.
fn property(greeting: &[u8], name: &str) -> Option<String> {
    let mut key = vec![u8::try_from(name.len()).ok()?];
    key.extend_from_slice(name.as_bytes());
    key.push(b'S');
    let start = greeting.windows(key.len()).position(|window| window == key)? + key.len();
    let (length, rest) = greeting[start..].split_first_chunk::<4>()?;
    let text = rest.get(..u32::from_be_bytes(*length) as usize)?;
    Some(String::from_utf8_lossy(text).into_owned())
}

fn unexpected(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sent_frame_is_received() {
        let mut stream = Vec::new();
        send(&mut stream, TUNE, b"limits").unwrap();
        assert_eq!(receive(&mut stream.as_slice(), TUNE).unwrap(), b"limits");
        assert!(receive(&mut stream.as_slice(), OPEN_OK).is_err());
    }

    #[test]
    fn properties_are_found_by_name() {
        let greeting = b"\0\x09\0\0\0\x99\x07productS\0\0\0\x08RabbitMQ\x07versionS\0\0\0\x063.10.8";
        assert_eq!(property(greeting, "version").as_deref(), Some("3.10.8"));
        assert_eq!(property(greeting, "product").as_deref(), Some("RabbitMQ"));
        assert_eq!(property(greeting, "cluster_name"), None);
        assert_eq!(property(&greeting[..greeting.len() - 1], "version"), None);
    }

    #[test]
    fn another_protocol_is_an_error() {
        let error = receive(&mut b"HTTP/1.1 400 Bad Request".as_slice(), START).unwrap_err();
        assert_eq!(error.to_string(), "not AMQP 0-9-1");
    }
}
