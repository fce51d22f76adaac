//! What must not be shown: URLs with passwords, and the keys of signatures.

use std::fmt;

#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Secret(String);

impl Secret {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text itself, for whoever connects.
    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }
}

/// Shows of a URL whom it leads to, and of anything else nothing. What stands before the last `@` may be a password, whichever
/// characters it has; a path or a query may be a token.
impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((scheme, rest)) = self.0.split_once("://") else { return f.write_str("…") };
        let (login, rest) = match rest.rsplit_once('@') {
            Some((_, rest)) => ("…@", rest),
            None => ("", rest),
        };
        let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let more = if rest.len() > host.len() { "/…" } else { "" };
        write!(f, "{scheme}://{login}{host}{more}")
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secret({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whom_it_leads_to_is_shown() {
        for (secret, shown) in [
            ("nats://127.0.0.1:4222", "nats://127.0.0.1:4222"),
            ("nats://token@broker:4222", "nats://…@broker:4222"),
            ("amqp://me:pa/s?s@w#rd@broker:5672/shop", "amqp://…@broker:5672/…"),
            ("nats://a:b@one:4222,nats://a:b@two:4222", "nats://…@two:4222"),
            ("https://hooks.example/T0/B0/token", "https://hooks.example/…"),
            ("https://hooks.example?token=1", "https://hooks.example/…"),
            ("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "…"),
        ] {
            assert_eq!(Secret::new(secret).to_string(), shown);
            assert_eq!(format!("{:?}", Secret::new(secret)), format!("Secret({shown})"));
        }
    }
}
