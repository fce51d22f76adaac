//! The keys of destinations and sources: their types, and which of them require or exclude each other.

use super::kind::Kind;
use std::time::Duration;

/// The defaults of every client.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// What a client trusts.
const TRUST: &[&str] = &["system", "bundle", "both"];

/// SASL mechanisms.
const SASL: &[&str] = &["plain", "scram-sha-256", "scram-sha-512"];

/// Keys that require each other.
pub(super) const REQUIRED_TOGETHER: [&[&str]; 2] =
    [&["certificate_file", "key_file"], &["sasl", "user", "password"]];

/// Keys of which at most one may be set: each is a login.
pub(super) const MUTUALLY_EXCLUSIVE: [&[&str]; 1] = [&["token", "nkey", "credentials"]];

/// Whether messages are sent there or received from there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    Destination,
    Source,
}

/// The type of a key's value.
#[derive(Debug, Clone, Copy)]
pub(super) enum ValueType {
    String,
    Choice(&'static [&'static str]),
    Flag,
    Number,
    /// With this default.
    Duration(Duration),
    /// Such as `"100/s"`.
    Rate,
    Strings,
    /// In the file if it holds no password, otherwise a secret.
    Url,
    /// Never in the file: an environment variable or another file holds it.
    Secret,
}

/// A key of a destination or source.
#[derive(Debug, Clone, Copy)]
pub(super) struct Key {
    pub(super) name: &'static str,
    pub(super) example: &'static str,
    pub(super) value_type: ValueType,
    pub(super) is_required: bool,
}

impl Key {
    const fn new(name: &'static str, example: &'static str, value_type: ValueType) -> Self {
        Self { name, example, value_type, is_required: false }
    }

    const fn string(name: &'static str, example: &'static str) -> Self {
        Self::new(name, example, ValueType::String)
    }

    const fn flag(name: &'static str) -> Self {
        Self::new(name, "true", ValueType::Flag)
    }

    const fn secret(name: &'static str) -> Self {
        Self::new(name, "", ValueType::Secret)
    }

    const fn url(example: &'static str) -> Self {
        Self::new("url", example, ValueType::Url)
    }

    const fn required(self) -> Self {
        Self { is_required: true, ..self }
    }

    /// The names under which it may be set.
    pub(super) fn names(&self) -> Vec<String> {
        let [env, file] = [format!("{}_env", self.name), format!("{}_file", self.name)];
        match self.value_type {
            ValueType::Url => vec![self.name.to_owned(), env, file],
            ValueType::Secret => vec![env, file],
            _ => vec![self.name.to_owned()],
        }
    }
}

/// The keys of every client: certificates and timeouts, with this default of the request timeout.
fn client(request_timeout: Duration) -> [Key; 6] {
    [
        Key::string("ca_file", "\"/etc/ssl/broker-ca.pem\""),
        Key::new("trust", "\"both\"", ValueType::Choice(TRUST)),
        Key::string("certificate_file", "\"/etc/ssl/postrider.pem\""),
        Key::string("key_file", "\"/etc/ssl/postrider.key\""),
        Key::new("connect_timeout", "\"5s\"", ValueType::Duration(CONNECT_TIMEOUT)),
        Key::new("request_timeout", "\"10s\"", ValueType::Duration(request_timeout)),
    ]
}

/// The keys of a webhook receiver, with this default of the request timeout.
pub(super) fn webhook(request_timeout: Duration) -> Vec<Key> {
    let mut keys = vec![
        Key::url("\"https://shop.example/hooks\""),
        Key::secret("secret"),
        Key::secret("authorization"),
        Key::flag("allow_http"),
        Key::new("allow_networks", "[\"10.0.0.0/8\"]", ValueType::Strings),
    ];
    keys.extend(client(request_timeout));
    keys
}

/// The keys of this kind, except `kind` itself.
pub(super) fn keys(kind: Kind, direction: Direction) -> Vec<Key> {
    let mut keys = connection_keys(kind, direction);
    if direction == Direction::Destination {
        keys.push(Key::new("rate_limit", "\"100/s\"", ValueType::Rate));
    }
    keys.extend(match (kind, direction) {
        (Kind::Nats, Direction::Destination) => vec![Key::string("stream", "\"ORDERS\"")],
        (Kind::Redis, Direction::Destination) => {
            vec![Key::new("replicas", "1", ValueType::Number), Key::flag("must_exist")]
        }
        (_, Direction::Destination) | (Kind::Stdout | Kind::Sns, Direction::Source) => Vec::new(),
        (Kind::Webhook, Direction::Source) => vec![
            Key::string("path", "\"/hooks/orders\"").required(),
            Key::string("listen", "\"127.0.0.1:8080\"").required(),
            Key::secret("secret"),
        ],
        (Kind::RabbitMq, Direction::Source) => {
            vec![Key::string("queue", "\"orders\"").required(), Key::flag("quorum")]
        }
        (Kind::Nats, Direction::Source) => vec![
            Key::string("stream", "\"ORDERS\"").required(),
            Key::string("durable", "\"billing\"").required(),
            Key::string("subject", "\"orders.>\""),
        ],
        (Kind::Redis, Direction::Source) => vec![
            Key::string("stream", "\"orders\"").required(),
            Key::string("group", "\"billing\""),
            Key::flag("create_group"),
        ],
        (Kind::Kafka, Direction::Source) => vec![
            Key::string("topic", "\"orders\"").required(),
            Key::string("group", "\"billing\""),
            Key::string("instance", "\"billing-1\""),
        ],
        (Kind::Sqs, Direction::Source) => vec![Key::string("queue", "\"orders\"").required()],
    });
    keys
}

/// The keys for the address, TLS and authentication.
fn connection_keys(kind: Kind, direction: Direction) -> Vec<Key> {
    let mut keys = match kind {
        Kind::Stdout => return Vec::new(),
        Kind::Webhook if direction == Direction::Destination => return webhook(REQUEST_TIMEOUT),
        Kind::Webhook => return Vec::new(),
        Kind::RabbitMq => vec![Key::url("\"amqp://localhost:5672/%2f\"").required()],
        Kind::Nats => [
            &[Key::url("\"nats://127.0.0.1:4222\"").required()][..],
            &["token", "nkey", "credentials"].map(Key::secret),
        ]
        .concat(),
        Kind::Redis => vec![Key::url("\"redis://127.0.0.1:6379\"").required()],
        Kind::Kafka => vec![
            Key::url("\"kafka://127.0.0.1:9092\"").required(),
            Key::new("sasl", "\"scram-sha-512\"", ValueType::Choice(SASL)),
            Key::string("user", "\"relay\""),
            Key::secret("password"),
        ],
        Kind::Sqs | Kind::Sns => {
            vec![Key::url("\"http://localhost:4566\""), Key::string("region", "\"eu-central-1\"")]
        }
    };
    keys.extend(client(REQUEST_TIMEOUT));
    keys
}
