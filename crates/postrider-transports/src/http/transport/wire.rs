//! Encodes messages as HTTP requests: the HTTP binding of CloudEvents 1.0.
//!
//! Attributes become headers that begin with `ce-`, percent-encoded as the binding says. All other headers keep their names and
//! values: HTTP carries UTF-8 there, and readers of `traceparent` know no other encoding. Headers that HTTP would change are
//! refused.

use crate::http::binding::{EVENT, REQUEST_HEADERS};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use postrider_core::Outgoing;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};

/// The ASCII characters that the binding encodes, in addition to everything that is not ASCII.
const ENCODED: &AsciiSet = &CONTROLS.add(b' ').add(b'"').add(b'%');

/// The headers of a request without the signature, or the reason why the message cannot be sent.
pub(super) fn headers(outgoing: &Outgoing, configured: &HeaderMap) -> Result<HeaderMap, String> {
    let mut headers = configured.clone();
    headers.insert(CONTENT_TYPE, value("content-type", &outgoing.content_type)?);
    for (name, text) in &outgoing.attributes {
        let encoded = utf8_percent_encode(text, ENCODED).to_string();
        headers.insert(self::name(&format!("{EVENT}{name}"))?, value(name, &encoded)?);
    }
    for (name, text) in &outgoing.headers {
        let header = self::name(name)?;
        if REQUEST_HEADERS.contains(&header.as_str()) || headers.contains_key(&header) {
            return Err(format!(
                "the header {name} belongs to the request; rename the header of the message"
            ));
        }
        headers.insert(header, value(name, text)?);
    }
    Ok(headers)
}

pub(super) fn name(name: &str) -> Result<HeaderName, String> {
    HeaderName::try_from(name)
        .map_err(|_| format!("{name:?} is not a valid HTTP header name; rename the header of the message"))
}

/// A value that HTTP carries unchanged. Errors do not show it: it may be a secret.
pub(super) fn value(name: &str, text: &str) -> Result<HeaderValue, String> {
    if text.trim_matches([' ', '\t']) != text {
        return Err(format!(
            "the header {name} has white space at its ends, which HTTP removes; trim the value"
        ));
    }
    HeaderValue::from_bytes(text.as_bytes())
        .map_err(|_| format!("the header {name} has characters that HTTP cannot carry; encode the value"))
}

/// Whether a header may be configured: it belongs neither to the request nor to the message.
pub(super) fn may_be_configured(name: &HeaderName) -> bool {
    let name = name.as_str();
    !REQUEST_HEADERS.contains(&name) && !name.starts_with(EVENT) && !name.starts_with("postrider-")
}

#[cfg(test)]
mod tests {
    use super::*;
    use postrider_core::{Format, Message, MessageBuilder, MessageId};
    use std::time::SystemTime;

    fn written(builder: MessageBuilder) -> Result<HeaderMap, String> {
        let now = SystemTime::now();
        let message = builder.build().unwrap();
        let outgoing =
            Outgoing::write(&message, MessageId::at(now), now, "/shop", "orders".to_owned(), Format::Binary);
        headers(&outgoing.unwrap(), &HeaderMap::new())
    }

    fn order() -> MessageBuilder {
        Message::builder("orders").payload("17")
    }

    /// The example of the binding: a euro sign and an emoji.
    #[test]
    fn attributes_are_percent_encoded() {
        let headers = written(order().key("Euro € 😀 \"5%\"").event_type("order.placed")).unwrap();
        assert_eq!(headers["ce-partitionkey"], "Euro%20%E2%82%AC%20%F0%9F%98%80%20%225%25%22");
        assert_eq!(headers["ce-type"], "order.placed");
        assert_eq!(headers["ce-specversion"], "1.0");
    }

    #[test]
    fn headers_are_carried_unchanged_or_refused() {
        let headers = written(order().header("note", "a \"b\" 5% €").header("empty", "")).unwrap();
        assert_eq!(headers["note"].as_bytes(), "a \"b\" 5% €".as_bytes());
        assert_eq!(headers["empty"], "");
        assert!(written(order().header("note", " edges ")).unwrap_err().contains("white space"));
        for name in ["host", "content-length", "transfer-encoding", "webhook-id", "webhook-signature"] {
            assert!(
                written(order().header(name, "1")).unwrap_err().contains("belongs to the request"),
                "{name}"
            );
        }
    }

    #[test]
    fn message_header_does_not_replace_configured_header() {
        let mut outgoing = Outgoing::write(
            &order().build().unwrap(),
            MessageId::at(SystemTime::now()),
            SystemTime::now(),
            "/shop",
            String::new(),
            Format::Plain,
        )
        .unwrap();
        outgoing.headers.push(("authorization".to_owned(), "mine".to_owned()));
        let configured =
            HeaderMap::from_iter([(name("authorization").unwrap(), HeaderValue::from_static("ours"))]);
        assert!(headers(&outgoing, &configured).is_err());
        assert!(headers(&outgoing, &HeaderMap::new()).is_ok());
    }
}
