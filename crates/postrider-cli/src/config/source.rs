//! `source = { … }`: where a consumer receives from.

use super::{
    destination::{KINDS, Kind, URL},
    origin::{Found, Line},
    secret::Secret,
    setting::Settings,
    table::Table,
};
use postrider::Invalid;
use std::collections::BTreeMap;

/// What a kind has to be told besides where it is: texts by example, with whether it cannot do without; and what can be switched on.
type Keys = (&'static [(&'static str, &'static str, bool)], &'static [&'static str]);

const SECRET: [&str; 3] = ["secret", "secret_env", "secret_file"];

pub(super) fn keys(kind: Kind) -> Keys {
    match kind {
        Kind::Stdout => (&[], &[]),
        Kind::Webhook => {
            (&[("path", "\"/hooks/orders\"", true), ("listen", "\"127.0.0.1:8080\"", true)], &[])
        }
        Kind::RabbitMq => (&[("queue", "\"orders\"", true)], &["quorum"]),
        Kind::Nats => (
            &[
                ("stream", "\"ORDERS\"", true),
                ("durable", "\"billing\"", true),
                ("subject", "\"orders.>\"", false),
            ],
            &[],
        ),
        Kind::Redis => {
            (&[("stream", "\"orders\"", true), ("group", "\"billing\"", false)], &["create_group"])
        }
        Kind::Kafka => (
            &[
                ("topic", "\"orders\"", true),
                ("group", "\"billing\"", false),
                ("instance", "\"billing-1\"", false),
            ],
            &[],
        ),
        Kind::Sqs => (&[("queue", "\"orders\"", true), ("region", "\"eu-central-1\"", false)], &[]),
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SourceSection {
    pub(crate) line: Line,
    pub(crate) kind: Found<Kind>,
    pub(crate) url: Option<Found<Secret>>,
    /// Webhooks are signed with it.
    pub(crate) secret: Option<Found<Secret>>,
    texts: BTreeMap<&'static str, Found<String>>,
    flags: BTreeMap<&'static str, Found<bool>>,
}

impl SourceSection {
    pub(crate) fn read(table: &Table<'_>) -> Option<Self> {
        if !table.has("kind") {
            table.missing("kind", "\"rabbitmq\"");
            return None;
        }
        // Nothing comes from standard output.
        let kinds: Vec<_> = KINDS.into_iter().filter(|(_, kind)| *kind != Kind::Stdout).collect();
        let kind = table.word("kind", &kinds)?;
        let (texts, flags) = keys(kind.value);
        let mut known = vec!["kind"];
        known.extend(texts.iter().map(|(key, ..)| *key));
        known.extend(flags);
        known.extend(if kind.value == Kind::Webhook { &SECRET } else { &URL });
        table.knows(&known);
        kind.check_built(table);
        let (url, secret) = if kind.value == Kind::Webhook {
            (None, table.secret("secret", "\"whsec_…\""))
        } else {
            (kind.read_url(table), None)
        };
        let read = texts.iter().filter_map(|(key, example, is_needed)| {
            let found = if *is_needed { table.required(key, example) } else { table.text(key, example) };
            Some((*key, found?))
        });
        Some(Self {
            line: Line(table.line()),
            texts: read.collect(),
            flags: flags.iter().filter_map(|key| Some((*key, table.flag(key)?))).collect(),
            url,
            secret,
            kind,
        })
    }

    pub(crate) fn text(&self, key: &str) -> Option<&str> {
        self.texts.get(key).map(|text| text.as_str())
    }

    pub(crate) fn needed(&self, key: &'static str) -> Result<&str, Invalid> {
        self.text(key).ok_or_else(|| Invalid::rule(key, "is missing"))
    }

    #[cfg(any(feature = "rabbitmq", feature = "redis"))]
    pub(crate) fn flag(&self, key: &str) -> bool {
        self.flags.get(key).is_some_and(|flag| flag.value)
    }

    #[cfg(any(feature = "rabbitmq", feature = "nats", feature = "redis", feature = "kafka"))]
    pub(crate) fn url(&self) -> Result<&str, Invalid> {
        self.url.as_ref().map(|url| url.reveal()).ok_or_else(|| Invalid::rule("url", "is missing"))
    }

    pub(crate) fn settings(&self, key: &str, settings: &mut Settings) {
        settings.text(format!("{key}.kind"), &self.kind);
        for (last, secret) in [("url", &self.url), ("secret", &self.secret)] {
            if let Some(secret) = secret {
                settings.text(format!("{key}.{last}"), secret);
            }
        }
        for (last, text) in &self.texts {
            settings.text(format!("{key}.{last}"), text);
        }
        for (last, flag) in &self.flags {
            settings.add(format!("{key}.{last}"), flag, flag.value);
        }
    }
}
