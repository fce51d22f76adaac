//! A message as an entry of a stream.

use postrider_core::{Incoming, Outgoing};
use redis::Cmd;

/// The fields that every entry has, or may have.
const OURS: [&str; 4] = ["id", "key", "content_type", "body"];

/// The command that adds a message, or why it can never be added.
pub(super) fn add(outgoing: &Outgoing, must_exist: bool, largest: usize) -> Result<Cmd, String> {
    // Made as large as it becomes: a batch is hundreds of them.
    let fields = OURS.len() + outgoing.attributes.len() + outgoing.headers.len();
    let names = 8 * fields;
    let mut command = Cmd::with_capacity(4 + 2 * fields, 128 + names + outgoing.size());
    command.arg("XADD");
    if outgoing.destination.is_empty() {
        return Err("the destination is empty; name a stream".to_owned());
    }
    fits("the name of the stream", outgoing.destination.len(), largest)?;
    command.arg(&outgoing.destination);
    if must_exist {
        command.arg("NOMKSTREAM");
    }
    // No MAXLEN and no MINID: nothing is ever removed to make room.
    command.arg("*");
    let mut put = |name: &str, value: &[u8]| {
        fits(name, value.len(), largest)?;
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
        // The router of Debezium has the id in a header of that name.
        if name == "id" && *value == id {
            continue;
        }
        if OURS.contains(&name.as_str()) {
            return Err(format!("header {name:?} has the name of a field; choose another one"));
        }
        put(name, value.as_bytes())?;
    }
    put("body", &outgoing.body)?;
    Ok(command)
}

/// The binding undone. Whoever wrote the entry may have left out anything; of fields that are there twice the first counts.
pub(super) fn read(stream: &str, fields: Vec<(Vec<u8>, Vec<u8>)>) -> Incoming {
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
        let place = match &*name {
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
        place.get_or_insert(value);
    }
    incoming
}

/// A server ends the connection that sends it a longer value, and with it everybody else's messages.
fn fits(what: &str, bytes: usize, largest: usize) -> Result<(), String> {
    match bytes > largest {
        true => Err(format!("{what} has {bytes} bytes; the server takes {largest} (proto-max-bulk-len)")),
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
    fn an_entry_is_added_and_nothing_is_removed() {
        let text = text(&add(&order(Format::Binary), false, 1_000).unwrap());
        assert!(
            !text.contains("MAXLEN") && !text.contains("MINID") && !text.contains("NOMKSTREAM"),
            "{text}"
        );
        assert!(text.contains("ce_specversion") && text.contains("$5 color $4 blue"), "{text}");
        assert!(add(&order(Format::Binary), true, 1_000).is_ok_and(|command| {
            command.get_packed_command().windows(10).any(|window| window == b"NOMKSTREAM")
        }));
    }

    #[test]
    fn the_id_is_there_once() {
        let text = text(&add(&order(Format::Debezium), false, 1_000).unwrap());
        assert_eq!(text.matches("$2 id ").count(), 1, "{text}");
    }

    #[test]
    fn a_header_never_takes_the_place_of_a_field() {
        for name in OURS {
            let mut outgoing = order(Format::Binary);
            outgoing.headers.push((name.to_owned(), "mine".to_owned()));
            assert!(add(&outgoing, false, 1_000).is_err(), "{name}");
        }
    }

    #[test]
    fn what_others_wrote_is_read_without_complaint() {
        let field = |name: &[u8], value: &[u8]| (name.to_vec(), value.to_vec());
        let incoming = read(
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
        assert_eq!(read("orders", Vec::new()), Incoming::new("orders", ""));
    }

    #[test]
    fn what_the_server_would_not_read_is_refused() {
        let mut outgoing = order(Format::Binary);
        outgoing.body = vec![b'x'; 1_001].into();
        assert!(add(&outgoing, false, 1_000).unwrap_err().starts_with("body has 1001 bytes"));
        outgoing.destination = String::new();
        assert!(add(&outgoing, false, 1_000).is_err());
    }
}
