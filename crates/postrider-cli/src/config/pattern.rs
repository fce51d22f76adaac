//! Which types of messages: `order.placed`, or all that begin alike, `order.*`.

use postrider::{EventType, Message};
use std::fmt;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TypePattern {
    Exactly(EventType),
    Begins(String),
}

impl TypePattern {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        match text.split_once('*') {
            None => EventType::new(text).map(Self::Exactly).map_err(|error| error.to_string()),
            Some((beginning, "")) => Ok(Self::Begins(beginning.to_owned())),
            Some(_) => Err("a star stands at the end, as in order.*, and nowhere else".to_owned()),
        }
    }

    /// Whether the message is of such a type. One without a type is of none.
    pub(crate) fn takes(&self, message: &Message) -> bool {
        message.event_type().is_some_and(|event_type| match self {
            Self::Exactly(wanted) => event_type == wanted,
            Self::Begins(beginning) => event_type.as_str().starts_with(beginning),
        })
    }
}

impl fmt::Display for TypePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exactly(wanted) => f.write_str(wanted.as_str()),
            Self::Begins(beginning) => write!(f, "{beginning}*"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_end() {
        let takes = |pattern: &str, event_type: &str| {
            let message = Message::builder("orders").event_type(event_type).payload("").build().unwrap();
            TypePattern::parse(pattern).unwrap().takes(&message)
        };
        assert!(takes("order.placed", "order.placed") && !takes("order.placed", "order.placed.twice"));
        assert!(takes("order.*", "order.placed") && !takes("order.*", "orders.placed"));
        assert!(takes("*", "anything"));
        let untyped = Message::builder("orders").payload("").build().unwrap();
        assert!(!TypePattern::parse("*").unwrap().takes(&untyped));
        for wrong in ["*.placed", "order.*.*", ""] {
            assert!(TypePattern::parse(wrong).is_err(), "{wrong}");
        }
    }
}
