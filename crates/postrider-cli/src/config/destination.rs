//! `[destinations.…]`: where messages go.

use super::{origin::Found, secret::Secret, setting::Settings, table::Table};
use std::fmt;

/// What is there to send by. Not every build has all of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Stdout,
    Webhook,
    RabbitMq,
    Nats,
    Redis,
    Kafka,
    Sqs,
}

pub(super) const KINDS: [(&str, Kind); 7] = [
    ("stdout", Kind::Stdout),
    ("webhook", Kind::Webhook),
    ("rabbitmq", Kind::RabbitMq),
    ("nats", Kind::Nats),
    ("redis", Kind::Redis),
    ("kafka", Kind::Kafka),
    ("sqs", Kind::Sqs),
];

pub(super) const URL: [&str; 3] = ["url", "url_env", "url_file"];

impl Kind {
    fn is_built(self) -> bool {
        match self {
            Self::Stdout | Self::Webhook => true,
            Self::RabbitMq => cfg!(feature = "rabbitmq"),
            Self::Nats => cfg!(feature = "nats"),
            Self::Redis => cfg!(feature = "redis"),
            Self::Kafka => cfg!(feature = "kafka"),
            Self::Sqs => cfg!(feature = "sqs"),
        }
    }

    /// Its own keys, besides `kind`.
    pub(super) fn keys(self) -> Vec<&'static str> {
        let more: &[&str] = match self {
            Self::Stdout => return Vec::new(),
            Self::Webhook => &["secret", "secret_env", "secret_file", "allow_http", "allow_networks"],
            Self::Sqs => &["region"],
            Self::RabbitMq | Self::Nats | Self::Redis | Self::Kafka => &[],
        };
        [&URL, more].concat()
    }

    /// A URL that it cannot do without, by example.
    fn url(self) -> Option<&'static str> {
        match self {
            Self::Stdout | Self::Webhook | Self::Sqs => None,
            Self::RabbitMq => Some("\"amqp://guest:guest@localhost:5672/%2f\""),
            Self::Nats => Some("\"nats://127.0.0.1:4222\""),
            Self::Redis => Some("\"redis://127.0.0.1:6379\""),
            Self::Kafka => Some("\"kafka://127.0.0.1:9092\""),
        }
    }

    /// Tells it when this build does not have it.
    pub(super) fn check_built(self, table: &Table<'_>) {
        if !self.is_built() {
            let what =
                format!("{} is {:?}, which this build does not have", table.path("kind"), self.to_string());
            table.wrong(table.line_of("kind"), what, self.advice());
        }
    }

    /// Where it is, if it has to be told.
    pub(super) fn read_url(self, table: &Table<'_>) -> Option<Found<Secret>> {
        let url = table.secret("url", self.url().unwrap_or("\"https://shop.example/hooks\""));
        if let Some(example) = self.url()
            && !URL.iter().any(|key| table.has(key))
        {
            table.missing("url", example);
        }
        url
    }

    /// What to do when this build does not have it.
    fn advice(self) -> String {
        format!(
            "install the build with it: cargo install postrider-cli --features {self} (or --features full)"
        )
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(KINDS.iter().find(|(_, kind)| kind == self).map_or("", |(name, _)| name))
    }
}

#[derive(Debug, Clone)]
pub(crate) struct DestinationSection {
    /// Where it stands, for whoever cannot build it.
    pub(crate) line: usize,
    pub(crate) kind: Found<Kind>,
    pub(crate) url: Option<Found<Secret>>,
    /// Signs webhooks.
    pub(crate) secret: Option<Found<Secret>>,
    pub(crate) allow_http: Found<bool>,
    pub(crate) allow_networks: Found<Vec<String>>,
    pub(crate) region: Option<Found<String>>,
}

impl DestinationSection {
    pub(crate) fn read(table: &Table<'_>) -> Option<Self> {
        if !table.has("kind") {
            table.missing("kind", "\"webhook\"");
            return None;
        }
        let kind = table.word("kind", &KINDS)?;
        table.knows(&[&["kind"], &kind.keys()[..]].concat());
        kind.check_built(table);
        Some(Self {
            line: table.line(),
            url: kind.read_url(table),
            secret: table.secret("secret", "\"whsec_…\""),
            allow_http: table.flag("allow_http").unwrap_or(Found::default(false)),
            allow_networks: table
                .texts("allow_networks", "[\"10.0.0.0/8\"]")
                .unwrap_or(Found::default(Vec::new())),
            region: table.text("region", "\"eu-central-1\""),
            kind,
        })
    }

    pub(crate) fn settings(&self, name: &str, settings: &mut Settings) {
        let key = |last: &str| format!("destinations.{name}.{last}");
        settings.text(key("kind"), &self.kind);
        for (last, secret) in [("url", &self.url), ("secret", &self.secret)] {
            if let Some(secret) = secret {
                settings.text(key(last), secret);
            }
        }
        if self.kind.value == Kind::Webhook {
            settings.add(key("allow_http"), &self.allow_http, self.allow_http.value);
            settings.add(key("allow_networks"), &self.allow_networks, self.allow_networks.value.clone());
        }
        if let Some(region) = &self.region {
            settings.text(key("region"), region);
        }
    }
}

/// Where it stands does not matter.
impl PartialEq for DestinationSection {
    fn eq(&self, other: &Self) -> bool {
        let Self { line: _, kind, url, secret, allow_http, allow_networks, region } = self;
        (kind, url, secret) == (&other.kind, &other.url, &other.secret)
            && (allow_http, allow_networks, region)
                == (&other.allow_http, &other.allow_networks, &other.region)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_that_is_not_built_says_which_build_has_it() {
        let advice =
            "install the build with it: cargo install postrider-cli --features kafka (or --features full)";
        assert_eq!(Kind::Kafka.advice(), advice);
    }
}
