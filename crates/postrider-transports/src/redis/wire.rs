//! Encodes and decodes a message as a stream entry.

use postrider_core::{Incoming, Outgoing};
use redis::Cmd;

/// Field names with a fixed meaning.
const RESERVED: [&str; 4] = ["id", "key", "content_type", "body"];

/// The `XADD` command for a message, or why it can never be added.
pub(super) fn encode(outgoing: &Outgoing, must_exist: bool, max_value_bytes: usize) -> Result<Cmd, String> {
    // Allocated at its final size: a batch has hundreds of commands.
    let fields = RESERVED.len() + outgoing.attributes.len() + outgoing.headers.len();
    let names = 8 * fields;
    let mut command = Cmd::with_capacity(4 + 2 * fields, 128 + names + outgoing.size());
    command.arg("XADD");
    if outgoing.destination.is_empty() {
        return Err("the destination is empty; give the name of a stream".to_owned());
    }
    check_size("the stream name", outgoing.destination.len(), max_value_bytes)?;
    command.arg(&outgoing.destination);
    if must_exist {
        command.arg("NOMKSTREAM");
    }
    // No MAXLEN and no MINID: adding never removes entries.
    command.arg("*");
    let mut put = |name: &str, value: &[u8]| {
        check_size(name, value.len(), max_value_bytes)?;
        command.arg(name).arg(value);
        Ok::<(), String>(())
    };
    let id = outgoing.id.to_string();
    put("id", id.as_bytes())?;
    if let Some(key) = &outgoing.key {
        put("key", key.as_str().as_bytes())?;
    }
    put("content_type", outgoing.content_type.as_bytes())?;
    let mut prefixed = String::with_capacity(32);
    for (name, value) in &outgoing.attributes {
        prefixed.clear();
        prefixed.push_str("ce_");
        prefixed.push_str(name);
        put(&prefixed, value.as_bytes())?;
    }
    for (name, value) in &outgoing.headers {
        // The Debezium format has the id in a header of that name.
        if name == "id" && *value == id {
            continue;
        }
        if RESERVED.contains(&name.as_str()) {
            return Err(format!("header {name:?} has the name of a reserved field; choose another name"));
        }
        put(name, value.as_bytes())?;
    }
    put("body", &outgoing.body)?;
    Ok(command)
}

/// Decodes an entry. Any field may be missing; of duplicate fields the first one counts.
pub(super) fn decode(stream: &str, fields: Vec<(Vec<u8>, Vec<u8>)>) -> Incoming {
    let mut incoming = Incoming::new(stream, "");
    let mut has_body = false;
    for (name, value) in fields {
        let name = String::from_utf8_lossy(&name);
        if name == "body" {
            if !has_body {
                incoming.body = value.into();
            }
            has_body = true;
            continue;
        }
        let value = String::from_utf8_lossy(&value).into_owned();
        let field = match &*name {
            "id" => &mut incoming.id,
            "key" => &mut incoming.key,
            "content_type" => &mut incoming.content_type,
            _ => {
                match name.strip_prefix("ce_") {
                    Some(attribute) => incoming.attributes.push((attribute.to_owned(), value)),
                    None => incoming.headers.push((name.into_owned(), value)),
                }
                continue;
            }
        };
        field.get_or_insert(value);
    }
    incoming
}

/// The server closes a connection that sends a longer value, and with it the messages of all other calls.
fn check_size(what: &str, bytes: usize, max_value_bytes: usize) -> Result<(), String> {
    match bytes > max_value_bytes {
        true => {
            Err(format!("{what} has {bytes} bytes; the server allows {max_value_bytes} (proto-max-bulk-len)"))
        }
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use postrider_core::{Format, Message, MessageId};
    use std::time::SystemTime;

    fn order(format: Format) -> Outgoing {
        let message = Message::builder("orders").header("color", "blue").key("17").payload("x").build();
        let now = SystemTime::UNIX_EPOCH;
        let id = MessageId::at(now);
        Outgoing::write(&message.unwrap(), id, now, "/shop", "orders".to_owned(), format).unwrap()
    }

    fn text(command: &Cmd) -> String {
        String::from_utf8_lossy(&command.get_packed_command()).replace("\r\n", " ")
    }

    #[test]
    fn encode_never_trims_the_stream() {
        let text = text(&encode(&order(Format::Binary), false, 1_000).unwrap());
        assert!(
            !text.contains("MAXLEN") && !text.contains("MINID") && !text.contains("NOMKSTREAM"),
            "{text}"
        );
        assert!(text.contains("ce_specversion") && text.contains("$5 color $4 blue"), "{text}");
        assert!(encode(&order(Format::Binary), true, 1_000).is_ok_and(|command| {
            command.get_packed_command().windows(10).any(|window| window == b"NOMKSTREAM")
        }));
    }

    #[test]
    fn debezium_format_writes_the_id_once() {
        let text = text(&encode(&order(Format::Debezium), false, 1_000).unwrap());
        assert_eq!(text.matches("$2 id ").count(), 1, "{text}");
    }

    #[test]
    fn header_with_reserved_field_name_is_rejected() {
        for name in RESERVED {
            let mut outgoing = order(Format::Binary);
            outgoing.headers.push((name.to_owned(), "mine".to_owned()));
            assert!(encode(&outgoing, false, 1_000).is_err(), "{name}");
        }
    }

    #[test]
    fn decode_accepts_foreign_and_malformed_entries() {
        let field = |name: &[u8], value: &[u8]| (name.to_vec(), value.to_vec());
        let incoming = decode(
            "orders",
            vec![
                field(b"id", b"1"),
                field(b"id", b"2"),
                field(b"ce_type", b"t"),
                field(b"body", b"\xff"),
                field(b"body", b"b"),
                field(b"\xff", b"\xfe"),
            ],
        );
        assert_eq!((incoming.id.as_deref(), &incoming.body[..]), (Some("1"), &b"\xff"[..]));
        assert_eq!(incoming.attributes, [("type".to_owned(), "t".to_owned())]);
        assert_eq!(incoming.headers, [("\u{fffd}".to_owned(), "\u{fffd}".to_owned())]);
        assert_eq!(decode("orders", Vec::new()), Incoming::new("orders", ""));
    }

    #[test]
    fn oversized_value_and_empty_destination_are_rejected() {
        let mut outgoing = order(Format::Binary);
        outgoing.body = vec![b'x'; 1_001].into();
        assert!(encode(&outgoing, false, 1_000).unwrap_err().starts_with("body has 1001 bytes"));
        outgoing.destination = String::new();
        assert!(encode(&outgoing, false, 1_000).is_err());
    }
}
