//! The keys of a place: what each holds, and which of them belong together.

use super::kind::Kind;
use std::time::Duration;

/// Webhooks are given so long unless the file says otherwise.
const WEBHOOK_TIMEOUT: Duration = Duration::from_secs(10);

/// Mechanisms of SASL.
const SASL: &[&str] = &["plain", "scram-sha-256", "scram-sha-512"];

/// Whoever gives one of these has to give the others, too.
pub(super) const TOGETHER: [&[&str]; 2] = [&["certificate_file", "key_file"], &["sasl", "user", "password"]];

/// One says who it is, and a second would say somebody else.
pub(super) const EITHER: [&[&str]; 1] = [&["token", "nkey", "credentials"]];

/// Which way messages go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    To,
    From,
}

/// What may stand under a key.
#[derive(Debug, Clone, Copy)]
pub(super) enum Holds {
    Text,
    Word(&'static [&'static str]),
    Flag,
    Number,
    /// So long, unless given.
    Duration(Duration),
    Texts,
    /// May stand in the file as long as it holds no password; otherwise as a secret.
    Url,
    /// Never stands in the file: a variable or another file has it.
    Secret,
}

/// One key of a place.
#[derive(Debug, Clone, Copy)]
pub(super) struct Key {
    pub(super) name: &'static str,
    pub(super) example: &'static str,
    pub(super) holds: Holds,
    pub(super) is_needed: bool,
}

impl Key {
    const fn new(name: &'static str, example: &'static str, holds: Holds) -> Self {
        Self { name, example, holds, is_needed: false }
    }

    const fn text(name: &'static str, example: &'static str) -> Self {
        Self::new(name, example, Holds::Text)
    }

    const fn flag(name: &'static str) -> Self {
        Self::new(name, "true", Holds::Flag)
    }

    const fn secret(name: &'static str) -> Self {
        Self::new(name, "", Holds::Secret)
    }

    const fn url(example: &'static str) -> Self {
        Self::new("url", example, Holds::Url)
    }

    const fn needed(self) -> Self {
        Self { is_needed: true, ..self }
    }

    /// How it may be written.
    pub(super) fn names(&self) -> Vec<String> {
        let [env, file] = [format!("{}_env", self.name), format!("{}_file", self.name)];
        match self.holds {
            Holds::Url => vec![self.name.to_owned(), env, file],
            Holds::Secret => vec![env, file],
            _ => vec![self.name.to_owned()],
        }
    }
}

const CA: Key = Key::text("ca_file", "\"/etc/ssl/broker-ca.pem\"");
const CERTIFICATE: [Key; 2] = [
    Key::text("certificate_file", "\"/etc/ssl/postrider.pem\""),
    Key::text("key_file", "\"/etc/ssl/postrider.key\""),
];

/// How a receiver of webhooks is reached, and given so long to answer.
pub(super) fn webhook(timeout: Duration) -> Vec<Key> {
    vec![
        Key::url("\"https://shop.example/hooks\""),
        Key::secret("secret"),
        Key::secret("authorization"),
        Key::flag("allow_http"),
        Key::new("allow_networks", "[\"10.0.0.0/8\"]", Holds::Texts),
        Key::new("timeout", "\"10s\"", Holds::Duration(timeout)),
        CA,
    ]
}

/// What a place of this kind has, besides `kind`.
pub(super) fn keys(kind: Kind, side: Side) -> Vec<Key> {
    let mut keys = access(kind, side);
    if side == Side::To {
        keys.push(Key::new("max_per_second", "100", Holds::Number));
    }
    keys.extend(match (kind, side) {
        (Kind::Nats, Side::To) => vec![Key::text("stream", "\"ORDERS\"")],
        (Kind::Redis, Side::To) => vec![Key::new("replicas", "1", Holds::Number), Key::flag("must_exist")],
        (_, Side::To) | (Kind::Stdout | Kind::Sns, Side::From) => Vec::new(),
        (Kind::Webhook, Side::From) => vec![
            Key::text("path", "\"/hooks/orders\"").needed(),
            Key::text("listen", "\"127.0.0.1:8080\"").needed(),
            Key::secret("secret"),
        ],
        (Kind::RabbitMq, Side::From) => {
            vec![Key::text("queue", "\"orders\"").needed(), Key::flag("quorum")]
        }
        (Kind::Nats, Side::From) => vec![
            Key::text("stream", "\"ORDERS\"").needed(),
            Key::text("durable", "\"billing\"").needed(),
            Key::text("subject", "\"orders.>\""),
        ],
        (Kind::Redis, Side::From) => vec![
            Key::text("stream", "\"orders\"").needed(),
            Key::text("group", "\"billing\""),
            Key::flag("create_group"),
        ],
        (Kind::Kafka, Side::From) => vec![
            Key::text("topic", "\"orders\"").needed(),
            Key::text("group", "\"billing\""),
            Key::text("instance", "\"billing-1\""),
        ],
        (Kind::Sqs, Side::From) => vec![Key::text("queue", "\"orders\"").needed()],
    });
    keys
}

/// Where it is, whom it trusts, and who we are there.
fn access(kind: Kind, side: Side) -> Vec<Key> {
    match kind {
        Kind::Stdout => Vec::new(),
        Kind::Webhook if side == Side::To => webhook(WEBHOOK_TIMEOUT),
        Kind::Webhook => Vec::new(),
        Kind::RabbitMq => {
            [&[Key::url("\"amqp://localhost:5672/%2f\"").needed(), CA][..], &CERTIFICATE].concat()
        }
        Kind::Nats => [
            &[Key::url("\"nats://127.0.0.1:4222\"").needed()][..],
            &["token", "nkey", "credentials"].map(Key::secret),
            &[CA],
            &CERTIFICATE,
        ]
        .concat(),
        Kind::Redis => vec![Key::url("\"redis://127.0.0.1:6379\"").needed(), CA],
        Kind::Kafka => [
            &[
                Key::url("\"kafka://127.0.0.1:9092\"").needed(),
                Key::new("sasl", "\"scram-sha-512\"", Holds::Word(SASL)),
                Key::text("user", "\"relay\""),
                Key::secret("password"),
                CA,
            ][..],
            &CERTIFICATE,
        ]
        .concat(),
        Kind::Sqs | Kind::Sns => {
            vec![Key::url("\"http://localhost:4566\""), Key::text("region", "\"eu-central-1\"")]
        }
    }
}
