//! The keys of the file, as data: a key of any section is one line, of which the reader of the file, its error messages, `config show`,
//! `config schema` and the reference page are made. The keys of destinations and sources are here; those of other sections are in the
//! file of the section.

use super::{
    kind::{self, Kind},
    section::Section,
    table::Table,
    value::Mistake,
};

/// SASL mechanisms.
const SASL: &[&str] = &["plain", "scram-sha-256", "scram-sha-512"];

/// Keys that require each other.
pub(super) const REQUIRED_TOGETHER: [&[&str]; 2] =
    [&["certificate_file", "key_file"], &["sasl", "user", "password"]];

/// Keys of which at most one may be set: each is a login.
pub(super) const MUTUALLY_EXCLUSIVE: [&[&str]; 1] = [&["token", "nkey", "credentials"]];

const BROKER: &str = "URL of the broker";
const SIGNING_SECRETS: &str =
    "Signing secrets (`whsec_…`), separated by spaces: Postrider signs each request with all of them";

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
    /// A whole number of at least 1.
    Number,
    Decimal,
    Duration,
    /// Such as `"100/s"`.
    Rate,
    Strings,
    Numbers,
    Durations,
    /// An address to listen on, or `off`.
    Listen,
    /// In the file if it holds no password, otherwise a secret.
    Url,
    /// As `Url`, or the path of a SQLite file.
    Database,
    /// Never in the file: an environment variable or another file holds it.
    Secret,
    /// The name of a table of this section. If the key is optional, its default is the only table.
    Reference(&'static str),
    Table(TableType),
    /// A list of tables.
    Tables(TableType),
    /// Tables by name.
    NamedTables(TableType),
}

/// The keys of a table.
#[derive(Debug, Clone, Copy)]
pub(super) enum TableType {
    /// `check` reports problems that concern more than one key.
    Section { keys: fn() -> Vec<Key>, check: fn(&Table<'_>, &mut Section) },
    /// The value of its key `kind` determines the other keys.
    Endpoint(Direction),
}

/// The flag and the environment variable that override a key.
#[derive(Debug, Clone, Copy)]
pub(super) struct Override {
    pub(super) flag: &'static str,
    pub(super) variable: &'static str,
}

/// Checks the text of a value at this path, or each text of a list.
pub(super) type Rule = fn(&str, &str) -> Result<(), Mistake>;

/// A key of the file.
#[derive(Debug, Clone, Copy)]
pub(super) struct Key {
    pub(super) name: &'static str,
    /// The value to write, in TOML; or how to write a section of the file.
    pub(super) example: &'static str,
    pub(super) value_type: ValueType,
    pub(super) is_required: bool,
    pub(super) about: &'static str,
    /// In TOML.
    pub(super) default: Option<&'static str>,
    pub(super) rule: Option<Rule>,
    /// The name that it had once. A file with that name is rejected with the new one.
    pub(super) old_name: Option<&'static str>,
    /// Another key of the table that it conflicts with, and the reason.
    pub(super) conflict: Option<(&'static str, &'static str)>,
    pub(super) overridden_by: Option<Override>,
    /// The kind of database that it is for, if not for all.
    pub(super) only_for: Option<&'static str>,
}

impl Key {
    pub(super) const fn new(name: &'static str, example: &'static str, value_type: ValueType) -> Self {
        Self {
            name,
            example,
            value_type,
            is_required: false,
            about: "",
            default: None,
            rule: None,
            old_name: None,
            conflict: None,
            overridden_by: None,
            only_for: None,
        }
    }

    pub(super) const fn string(name: &'static str, example: &'static str) -> Self {
        Self::new(name, example, ValueType::String)
    }

    pub(super) const fn flag(name: &'static str) -> Self {
        Self::new(name, "true", ValueType::Flag).default("false")
    }

    const fn secret(name: &'static str) -> Self {
        Self::new(name, "", ValueType::Secret)
    }

    pub(super) const fn url(example: &'static str) -> Self {
        Self::new("url", example, ValueType::Url)
    }

    pub(super) const fn required(self) -> Self {
        Self { is_required: true, ..self }
    }

    /// Describes the key in one line.
    pub(super) const fn about(self, about: &'static str) -> Self {
        Self { about, ..self }
    }

    pub(super) const fn default(self, toml: &'static str) -> Self {
        Self { default: Some(toml), ..self }
    }

    pub(super) const fn rule(self, rule: Rule) -> Self {
        Self { rule: Some(rule), ..self }
    }

    pub(super) const fn renamed_from(self, old_name: &'static str) -> Self {
        Self { old_name: Some(old_name), ..self }
    }

    pub(super) const fn conflicts_with(self, other: &'static str, reason: &'static str) -> Self {
        Self { conflict: Some((other, reason)), ..self }
    }

    pub(super) const fn overridden_by(self, flag: &'static str, variable: &'static str) -> Self {
        Self { overridden_by: Some(Override { flag, variable }), ..self }
    }

    pub(super) const fn only_for(self, databases: &'static str) -> Self {
        Self { only_for: Some(databases), ..self }
    }

    /// The description with the rules that the key has as data.
    pub(super) fn description(&self) -> String {
        let only_for = self.only_for.map(|databases| format!("; for {databases} only"));
        let conflict =
            self.conflict.map(|(other, reason)| format!("; not together with `{other}`: {reason}"));
        let overridden =
            self.overridden_by.map(|by| format!(". `{}` and `{}` override it", by.flag, by.variable));
        let rules = [only_for, conflict, overridden].into_iter().flatten();
        rules.fold(self.about.to_owned(), |text, rule| text + &rule)
    }

    /// The names under which it may be set.
    pub(super) fn names(&self) -> Vec<String> {
        let [env, file] = references(self.name);
        match self.value_type {
            ValueType::Url | ValueType::Database => vec![self.name.to_owned(), env, file],
            ValueType::Secret => vec![env, file],
            _ => vec![self.name.to_owned()],
        }
    }

    pub(super) fn is_secret(&self) -> bool {
        matches!(self.value_type, ValueType::Url | ValueType::Database | ValueType::Secret)
    }

    /// The table or list as it is written in the file.
    pub(super) fn written(&self) -> String {
        match self.value_type {
            ValueType::NamedTables(_) => self.example.to_owned(),
            _ if self.example.starts_with("[[") => self.example.to_owned(),
            _ => format!("{} = {}", self.name, self.example),
        }
    }
}

/// The keys that refer to a secret.
pub(super) fn references(key: &str) -> [String; 2] {
    ["env", "file"].map(|suffix| format!("{key}_{suffix}"))
}

/// The words of these choices.
pub(super) const fn words<T, const N: usize>(choices: &[(&'static str, T); N]) -> [&'static str; N] {
    let mut words = [""; N];
    let mut index = 0;
    while index < N {
        words[index] = choices[index].0;
        index += 1;
    }
    words
}

/// These keys, and all keys of the tables below them.
pub(super) fn with_nested(keys: Vec<Key>) -> Vec<Key> {
    let nested = |key: &Key| match key.value_type {
        ValueType::Table(table) | ValueType::Tables(table) | ValueType::NamedTables(table) => {
            table.variants()
        }
        _ => Vec::new(),
    };
    let below: Vec<_> = keys.iter().flat_map(nested).flat_map(|(_, keys)| with_nested(keys)).collect();
    [keys, below].concat()
}

impl TableType {
    /// The lists of keys that such a table may have: one for each kind, or a single one without a kind.
    pub(super) fn variants(self) -> Vec<(Option<Kind>, Vec<Key>)> {
        match self {
            Self::Section { keys, .. } => vec![(None, keys())],
            Self::Endpoint(direction) => {
                let kinds = kind::KINDS.into_iter().filter(|(name, _)| kind::words(direction).contains(name));
                kinds.map(|(_, kind)| (Some(kind), keys(kind, direction))).collect()
            }
        }
    }
}

const CA: Key = Key::string("ca_file", "\"/etc/ssl/broker-ca.pem\"")
    .about("CA bundle (PEM) that replaces the default roots; requires a TLS scheme in `url`");
const CERTIFICATE: [Key; 2] = [
    Key::string("certificate_file", "\"/etc/ssl/postrider.pem\"").about("Client certificate (mTLS), in PEM"),
    Key::string("key_file", "\"/etc/ssl/postrider.key\"").about("Key of the client certificate, in PEM"),
];

/// The keys of a webhook receiver with this `url`, and with this default timeout.
pub(super) fn webhook(url: Key, timeout: &'static str) -> Vec<Key> {
    vec![
        url,
        Key::secret("secret").about(SIGNING_SECRETS),
        Key::secret("authorization").about("Value of the `Authorization` header"),
        Key::flag("allow_http").about("Also send unencrypted, to `http://` URLs"),
        Key::new("allow_networks", "[\"10.0.0.0/8\"]", ValueType::Strings)
            .default("[]")
            .about("Private networks to which Postrider may also send"),
        Key::new("timeout", "\"10s\"", ValueType::Duration)
            .default(timeout)
            .about("Time to wait for a response; after it, the request is retried"),
        CA.about("CA bundle (PEM) that is added to the default roots"),
    ]
}

/// The keys of this kind.
pub(super) fn keys(kind: Kind, direction: Direction) -> Vec<Key> {
    let mut keys = vec![kind::key(direction)];
    keys.extend(connection_keys(kind, direction));
    if direction == Direction::Destination {
        keys.push(
            Key::new("rate_limit", "\"100/s\"", ValueType::Rate)
                .renamed_from("max_per_second")
                .about("Maximum rate of messages, per process"),
        );
    }
    keys.extend(match (kind, direction) {
        (Kind::Nats, Direction::Destination) => {
            vec![Key::string("stream", "\"ORDERS\"").about("Accept acks from this stream only")]
        }
        (Kind::Redis, Direction::Destination) => vec![
            Key::new("replicas", "1", ValueType::Number).about("Replicas that must confirm each message"),
            Key::flag("must_exist").about("Do not create streams"),
        ],
        (_, Direction::Destination) | (Kind::Stdout | Kind::Sns, Direction::Source) => Vec::new(),
        (Kind::Webhook, Direction::Source) => vec![
            Key::string("path", "\"/hooks/orders\"").required().about("Path of the requests to receive"),
            Key::string("listen", "\"127.0.0.1:8080\"")
                .required()
                .about("Address of its own to listen on"),
            Key::secret("secret").about(
                "Signing secrets, separated by spaces: Postrider accepts a request signed with any of them; without one it accepts unsigned requests, and logs a warning",
            ),
        ],
        (Kind::RabbitMq, Direction::Source) => vec![
            Key::string("queue", "\"orders\"").required().about("Queue to receive from"),
            Key::flag("quorum").about("The queue is a quorum queue, which counts deliveries"),
        ],
        (Kind::Nats, Direction::Source) => vec![
            Key::string("stream", "\"ORDERS\"").required().about("JetStream stream to receive from"),
            Key::string("durable", "\"billing\"").required().about("Durable name of the JetStream consumer"),
            Key::string("subject", "\"orders.>\"")
                .about("Subject filter; with it, Postrider creates a missing JetStream consumer"),
        ],
        (Kind::Redis, Direction::Source) => vec![
            Key::string("stream", "\"orders\"").required().about("Stream to receive from"),
            Key::string("group", "\"billing\"").about("Consumer group; `postrider` by default"),
            Key::flag("create_group").about("Create a missing group and stream"),
        ],
        (Kind::Kafka, Direction::Source) => vec![
            Key::string("topic", "\"orders\"").required().about("Topic to receive from"),
            Key::string("group", "\"billing\"").about("Consumer group; `postrider` by default"),
            Key::string("instance", "\"billing-1\"")
                .about("Name for static membership: the process keeps its partitions across a restart"),
        ],
        (Kind::Sqs, Direction::Source) => {
            vec![Key::string("queue", "\"orders\"").required().about("Queue to receive from")]
        }
    });
    keys
}

/// The keys for the address, TLS and authentication.
fn connection_keys(kind: Kind, direction: Direction) -> Vec<Key> {
    match kind {
        Kind::Stdout => Vec::new(),
        Kind::Webhook if direction == Direction::Destination => webhook(
            Key::url("\"https://shop.example/hooks\"")
                .about("URL that addresses are paths below; without it, addresses are whole URLs"),
            "\"10s\"",
        ),
        Kind::Webhook => Vec::new(),
        Kind::RabbitMq => {
            [&[Key::url("\"amqp://localhost:5672/%2f\"").required().about(BROKER), CA][..], &CERTIFICATE]
                .concat()
        }
        Kind::Nats => [
            &[Key::url("\"nats://127.0.0.1:4222\"").required().about(BROKER)][..],
            &[
                Key::secret("token").about("Token to authenticate with"),
                Key::secret("nkey").about("Seed of the NKey to authenticate with"),
                Key::secret("credentials").about("Credentials to authenticate with: the content of a `.creds` file"),
            ],
            &[CA],
            &CERTIFICATE,
        ]
        .concat(),
        Kind::Redis => vec![Key::url("\"redis://127.0.0.1:6379\"").required().about(BROKER), CA],
        Kind::Kafka => [
            &[
                Key::url("\"kafka://127.0.0.1:9092\"").required().about(BROKER),
                Key::new("sasl", "\"scram-sha-512\"", ValueType::Choice(SASL))
                    .about("SASL mechanism to authenticate with"),
                Key::string("user", "\"relay\"").about("User name for SASL"),
                Key::secret("password").about("Password for SASL"),
                CA,
            ][..],
            &CERTIFICATE,
        ]
        .concat(),
        Kind::Sqs | Kind::Sns => vec![
            Key::url("\"http://localhost:4566\"").about("Custom endpoint; by default that of AWS"),
            Key::string("region", "\"eu-central-1\"")
                .about("AWS region; by default that of the AWS configuration. Credentials come from the AWS default chain"),
        ],
    }
}
