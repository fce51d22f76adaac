//! The address of a message in RabbitMQ: an exchange and a routing key.

use lapin::types::ShortString;
use postrider_core::PublishError;
use std::fmt;

/// `exchange/routing.key`. The text before the first `/` is the exchange. If that is empty, or there is no `/`, it is the default
/// exchange, which routes to the queue named by the routing key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) exchange: ShortString,
    pub(super) key: ShortString,
}

impl Address {
    pub(super) fn parse(destination: &str) -> Result<Self, PublishError> {
        let (exchange, key) = destination.split_once('/').unwrap_or(("", destination));
        if exchange.is_empty() && key.is_empty() {
            return Err(PublishError::reject(format!(
                "{destination:?} names neither an exchange nor a queue; write exchange/routing.key, or the name of a queue"
            )));
        }
        Ok(Self { exchange: short("exchange", exchange)?, key: short("routing key", key)? })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.exchange.as_str() {
            "" => write!(f, "the default exchange with the routing key {:?}", self.key.as_str()),
            exchange => write!(f, "exchange {exchange:?} with the routing key {:?}", self.key.as_str()),
        }
    }
}

/// Text of at most 255 bytes, the limit of a short string in AMQP.
pub(super) fn short(what: &str, text: &str) -> Result<ShortString, PublishError> {
    ShortString::try_new(text)
        .map_err(|_| PublishError::reject(format!("the {what} has {} bytes; AMQP allows 255", text.len())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(destination: &str) -> (String, String) {
        let address = Address::parse(destination).unwrap();
        (address.exchange.to_string(), address.key.to_string())
    }

    #[test]
    fn address_parse_splits_at_first_slash() {
        let pair = |exchange: &str, key: &str| (exchange.to_owned(), key.to_owned());
        assert_eq!(parsed("shop/order.placed"), pair("shop", "order.placed"));
        assert_eq!(parsed("shop/a/b"), pair("shop", "a/b"));
        assert_eq!(parsed("shop/"), pair("shop", ""));
        assert_eq!(parsed("/orders"), pair("", "orders"));
        assert_eq!(parsed("orders"), pair("", "orders"));
    }

    #[test]
    fn address_parse_rejects_empty_and_overlong_names() {
        for destination in
            ["", "/", &format!("shop/{}", "k".repeat(256)), &format!("{}/key", "x".repeat(256))]
        {
            let result = Address::parse(destination);
            assert!(matches!(result, Err(PublishError::Reject { .. })), "{destination}: {result:?}");
        }
    }
}
