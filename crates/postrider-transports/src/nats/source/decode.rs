//! Decodes a message of a stream.

use async_nats::{HeaderMap, Message};
use percent_encoding::percent_decode_str;
use postrider_core::Incoming;

pub(super) fn decode(origin: &str, message: Message) -> Incoming {
    let mut incoming = Incoming::new(origin, message.payload);
    let mut data_type = None;
    for (name, values) in message.headers.iter().flat_map(HeaderMap::iter) {
        let (name, Some(value)) = (AsRef::<str>::as_ref(name), values.last()) else { continue };
        let decoded = || percent_decode_str(value.as_str()).decode_utf8_lossy().into_owned();
        if name.eq_ignore_ascii_case("Nats-Msg-Id") {
            incoming.id = Some(value.as_str().to_owned());
        } else if name.eq_ignore_ascii_case("Content-Type") {
            incoming.content_type = Some(value.as_str().to_owned());
        } else if let Some(attribute) = strip_prefix_ignore_case("ce-", name) {
            match attribute.to_ascii_lowercase() {
                attribute if attribute == "datacontenttype" => data_type = Some(decoded()),
                attribute => incoming.attributes.push((attribute, decoded())),
            }
        } else if strip_prefix_ignore_case("Nats-", name).is_none() {
            // `Nats-` headers are instructions to the server and its own metadata.
            incoming.headers.push((name.to_owned(), value.as_str().to_owned()));
        }
    }
    incoming.content_type = data_type.or(incoming.content_type);
    incoming
}

/// The rest of a name behind a prefix, in any case.
fn strip_prefix_ignore_case<'n>(start: &str, name: &'n str) -> Option<&'n str> {
    let (before, rest) = name.split_at_checked(start.len())?;
    before.eq_ignore_ascii_case(start).then_some(rest)
}
