//! A message of a stream in our words.

use async_nats::{HeaderMap, Message};
use percent_encoding::percent_decode_str;
use postrider_core::Incoming;

pub(super) fn read(origin: &str, message: Message) -> Incoming {
    let mut incoming = Incoming::new(origin, message.payload);
    let mut data_type = None;
    for (name, values) in message.headers.iter().flat_map(HeaderMap::iter) {
        let (name, Some(value)) = (AsRef::<str>::as_ref(name), values.last()) else { continue };
        let decoded = || percent_decode_str(value.as_str()).decode_utf8_lossy().into_owned();
        if name.eq_ignore_ascii_case("Nats-Msg-Id") {
            incoming.id = Some(value.as_str().to_owned());
        } else if name.eq_ignore_ascii_case("Content-Type") {
            incoming.content_type = Some(value.as_str().to_owned());
        } else if let Some(attribute) = after("ce-", name) {
            match attribute.to_ascii_lowercase() {
                attribute if attribute == "datacontenttype" => data_type = Some(decoded()),
                attribute => incoming.attributes.push((attribute, decoded())),
            }
        } else if after("Nats-", name).is_none() {
            // Those are orders to the server, and its own remarks.
            incoming.headers.push((name.to_owned(), value.as_str().to_owned()));
        }
    }
    incoming.content_type = data_type.or(incoming.content_type);
    incoming
}

/// What stands behind a beginning, however that is written.
fn after<'n>(start: &str, name: &'n str) -> Option<&'n str> {
    let (before, rest) = name.split_at_checked(start.len())?;
    before.eq_ignore_ascii_case(start).then_some(rest)
}
