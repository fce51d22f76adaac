//! Decodes requests: the HTTP binding of CloudEvents 1.0.

use crate::http::{
    binding::{EVENT, REQUEST_HEADERS},
    signature,
};
use axum::http::{
    HeaderMap, HeaderValue,
    header::{ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CONTENT_TYPE, COOKIE, HeaderName},
};
use bytes::Bytes;
use percent_encoding::percent_decode_str;
use postrider_core::Incoming;
use std::borrow::Cow;

/// Headers between sender and server, some of them secret: they are not part of the message.
const DROPPED_HEADERS: [HeaderName; 4] = [ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, COOKIE];

/// The message of a request to `origin`.
pub(super) fn incoming(origin: &str, headers: &HeaderMap, body: Bytes) -> Incoming {
    let mut incoming = Incoming::new(origin, body);
    let known = |name: &str| headers.get(name).map(|value| text(value).into_owned());
    incoming.id = known(signature::ID);
    incoming.content_type = known(CONTENT_TYPE.as_str());
    for (name, value) in headers {
        let value = text(value);
        match name.as_str().strip_prefix(EVENT) {
            Some(attribute) => incoming.attributes.push((attribute.to_owned(), decoded(&value))),
            None if REQUEST_HEADERS.contains(&name.as_str()) || DROPPED_HEADERS.contains(name) => {}
            None => incoming.headers.push((name.as_str().to_owned(), value.into_owned())),
        }
    }
    incoming
}

fn text(value: &HeaderValue) -> Cow<'_, str> {
    String::from_utf8_lossy(value.as_bytes())
}

/// Removes quotes first, and then decodes percent-encoding, once.
fn decoded(value: &str) -> String {
    let unquoted = match value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) {
        Some(quoted) => Cow::Owned(unescaped(quoted)),
        None => Cow::Borrowed(value),
    };
    percent_decode_str(&unquoted).decode_utf8_lossy().into_owned()
}

/// Removes the backslash before an escaped character.
fn unescaped(quoted: &str) -> String {
    let mut characters = quoted.chars();
    let mut next = || match characters.next() {
        Some('\\') => characters.next(),
        other => other,
    };
    std::iter::from_fn(&mut next).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(headers: &[(&'static str, &[u8])]) -> Incoming {
        let pair = |(name, value): &(&'static str, &[u8])| {
            (HeaderName::from_static(name), HeaderValue::from_bytes(value).unwrap())
        };
        incoming("/hooks", &headers.iter().map(pair).collect(), Bytes::from_static(b"17"))
    }

    fn pairs(pairs: &[(String, String)]) -> Vec<(&str, &str)> {
        pairs.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect()
    }

    #[test]
    fn attributes_are_decoded_once() {
        let message = of(&[
            ("ce-subject", b"Euro%20%E2%82%AC%20%F0%9F%98%80"),
            ("ce-once", b"%2541"),
            ("ce-quoted", br#""a \"b\" %41\\""#),
            ("ce-broken", b"%FF%zz\xC3"),
            ("ce-quote", b"\""),
        ]);
        let expected = [
            ("subject", "Euro € 😀"),
            ("once", "%41"),
            ("quoted", "a \"b\" A\\"),
            ("broken", "\u{FFFD}%zz\u{FFFD}"),
            ("quote", "\""),
        ];
        assert_eq!(pairs(&message.attributes), expected);
        assert!(message.headers.is_empty());
    }

    #[test]
    fn request_headers_are_not_part_of_the_message() {
        let message = of(&[
            ("host", b"shop.example"),
            ("authorization", b"Bearer s3cret"),
            ("cookie", b"s3cret"),
            ("content-type", b"text/plain"),
            ("webhook-id", b"A-1"),
            ("webhook-signature", b"v1,s3cret"),
            ("color", "blau € %41".as_bytes()),
            ("odd", b"\xFF"),
        ]);
        assert_eq!(pairs(&message.headers), [("color", "blau € %41"), ("odd", "\u{FFFD}")]);
        assert_eq!(
            (message.id.as_deref(), message.content_type.as_deref()),
            (Some("A-1"), Some("text/plain"))
        );
        assert_eq!((message.origin.as_str(), &message.body[..]), ("/hooks", &b"17"[..]));
    }
}
