//! Secrets that must not be shown: URLs with passwords, and signing keys.

use std::fmt;

/// Schemes whose user without a password is a name; with other schemes it may be a token.
const SCHEMES_WITH_USER_NAMES: [&str; 6] = ["postgres", "postgresql", "amqp", "amqps", "redis", "rediss"];
/// Query parameters whose name contains one of these are secret.
const SECRET_PARAMETERS: [&str; 6] = ["password", "passwd", "secret", "token", "apikey", "api_key"];

#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Secret(String);

impl Secret {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The secret itself, for the client that connects.
    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }

    /// Whether this URL, or one of a comma-separated list, holds credentials beyond a user name.
    pub(crate) fn holds_password(&self) -> bool {
        // A comma may also be part of a password.
        holds_password(&self.0) || self.0.split(',').any(holds_password)
    }
}

fn holds_password(url: &str) -> bool {
    let Some((scheme, rest)) = url.trim().split_once("://") else { return false };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let in_user_info = authority.rsplit_once('@').is_some_and(|(login, _)| match login.split_once(':') {
        Some((_, password)) => !password.is_empty(),
        None => !SCHEMES_WITH_USER_NAMES.contains(&scheme) && !login.is_empty(),
    });
    let query = rest.split_once('?').map(|(_, query)| query).unwrap_or_default();
    let mut names =
        query.split('&').filter_map(|pair| pair.split_once('=')).map(|(name, _)| name.to_lowercase());
    in_user_info || names.any(|name| SECRET_PARAMETERS.iter().any(|word| name.contains(word)))
}

/// Shows the host of a URL, and nothing of any other secret. Everything before the last `@` may be a password, whatever its
/// characters; a path or a query may be a token.
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
    fn display_shows_only_the_host() {
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

    #[test]
    fn holds_password_detects_credentials_in_urls() {
        for url in [
            "postgres://me:secret@db/shop",
            "postgres://db/shop?user=me&password=secret",
            "postgres://db/shop?sslpassword=secret",
            "amqp://guest:guest@localhost:5672/%2f",
            "redis://:secret@127.0.0.1:6379",
            "nats://token@broker:4222",
            "postgres://me:clo,ver@db/shop",
            "nats://one:4222,me:secret@two:4222",
            "nats://one:4222, nats://a:b@two:4222",
            "https://key@hooks.example/",
            "https://hooks.example/?access_token=1",
        ] {
            assert!(Secret::new(url).holds_password(), "{url}");
        }
        for url in [
            "shop.db",
            "/srv/a,b/me:you@shop.db",
            "postgres://me@db:5432/shop?sslmode=require",
            "postgres://me:@db/shop",
            "amqps://relay@broker/shop",
            "kafka://one:9092,two:9092",
            "https://hooks.example:8443/@me/a:b?page=1",
        ] {
            assert!(!Secret::new(url).holds_password(), "{url}");
        }
    }
}
