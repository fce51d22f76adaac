//! A message as an HTTP request: the HTTP binding of CloudEvents 1.0.
//!
//! Attributes become headers that begin with `ce-`, percent-encoded as the binding says. All other headers go under their own
//! names, as they are: HTTP carries UTF-8 there, and readers of `traceparent` know no other encoding. What HTTP would bend is
//! refused.

use crate::http::binding::{EVENT, OF_REQUESTS};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use postrider_core::Outgoing;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};

/// What the binding encodes besides all that is not ASCII.
const ENCODED: &AsciiSet = &CONTROLS.add(b' ').add(b'"').add(b'%');

/// The headers of a request, but for the signature; or why there cannot be one.
pub(super) fn headers(outgoing: &Outgoing, configured: &HeaderMap) -> Result<HeaderMap, String> {
    let mut headers = configured.clone();
    headers.insert(CONTENT_TYPE, value("content-type", &outgoing.content_type)?);
    for (name, text) in &outgoing.attributes {
        let encoded = utf8_percent_encode(text, ENCODED).to_string();
        headers.insert(self::name(&format!("{EVENT}{name}"))?, value(name, &encoded)?);
    }
    for (name, text) in &outgoing.headers {
        let header = self::name(name)?;
        if OF_REQUESTS.contains(&header.as_str()) || headers.contains_key(&header) {
            return Err(format!("the header {name} belongs to the request; give the message's another name"));
        }
        headers.insert(header, value(name, text)?);
    }
    Ok(headers)
}

pub(super) fn name(name: &str) -> Result<HeaderName, String> {
    HeaderName::try_from(name).map_err(|_| format!("{name:?} is no name of a header in HTTP"))
}

/// A value that arrives as it is. It is not shown: it may be anything.
pub(super) fn value(name: &str, text: &str) -> Result<HeaderValue, String> {
    if text.trim_matches([' ', '\t']) != text {
        return Err(format!("the header {name} has white space at its ends, which HTTP takes away"));
    }
    HeaderValue::from_bytes(text.as_bytes())
        .map_err(|_| format!("the header {name} has characters that HTTP cannot carry"))
}

/// Whether a header may be configured: it belongs neither to the request nor to messages.
pub(super) fn may_be_configured(name: &HeaderName) -> bool {
    let name = name.as_str();
    !OF_REQUESTS.contains(&name) && !name.starts_with(EVENT) && !name.starts_with("postrider-")
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
    fn attributes_are_encoded_as_the_binding_says() {
        let headers = written(order().key("Euro € 😀 \"5%\"").event_type("order.placed")).unwrap();
        assert_eq!(headers["ce-partitionkey"], "Euro%20%E2%82%AC%20%F0%9F%98%80%20%225%25%22");
        assert_eq!(headers["ce-type"], "order.placed");
        assert_eq!(headers["ce-specversion"], "1.0");
    }

    #[test]
    fn headers_go_as_they_are_or_not_at_all() {
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
    fn a_message_does_not_replace_what_was_configured() {
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
