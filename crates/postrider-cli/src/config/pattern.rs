//! Event type patterns: an exact type, `order.placed`, or a prefix, `order.*`.

use postrider::{EventType, Message};
use std::fmt;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TypePattern {
    Exact(EventType),
    Prefix(String),
}

impl TypePattern {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        match text.split_once('*') {
            None => EventType::new(text).map(Self::Exact).map_err(|error| error.to_string()),
            Some((prefix, "")) => Ok(Self::Prefix(prefix.to_owned())),
            Some(_) => Err("write * only at the end, as in order.*".to_owned()),
        }
    }

    /// Whether the message's type matches. A message without a type matches no pattern.
    pub(crate) fn takes(&self, message: &Message) -> bool {
        message.event_type().is_some_and(|event_type| match self {
            Self::Exact(wanted) => event_type == wanted,
            Self::Prefix(prefix) => event_type.as_str().starts_with(prefix),
        })
    }
}

impl fmt::Display for TypePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(wanted) => f.write_str(wanted.as_str()),
            Self::Prefix(prefix) => write!(f, "{prefix}*"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_matches_any_suffix() {
        let matches = |pattern: &str, event_type: &str| {
            let message = Message::builder("orders").event_type(event_type).payload("").build().unwrap();
            TypePattern::parse(pattern).unwrap().takes(&message)
        };
        assert!(matches("order.placed", "order.placed") && !matches("order.placed", "order.placed.twice"));
        assert!(matches("order.*", "order.placed") && !matches("order.*", "orders.placed"));
        assert!(matches("*", "anything"));
        let untyped = Message::builder("orders").payload("").build().unwrap();
        assert!(!TypePattern::parse("*").unwrap().takes(&untyped));
        for wrong in ["*.placed", "order.*.*", ""] {
            assert!(TypePattern::parse(wrong).is_err(), "{wrong}");
        }
    }
}
