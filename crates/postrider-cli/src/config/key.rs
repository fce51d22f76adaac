//! The keys of destinations and sources, and which of them require or exclude each other. A key is one line; those of other sections are
//! in the file of the section.

use super::{
    key_type::{Key, ValueType},
    kind::{self, Kind},
};

/// The default timeout of a request.
const REQUEST_TIMEOUT: &str = "\"10s\"";

/// What a client trusts.
const TRUST: &[&str] = &["system", "bundle", "both"];

/// SASL mechanisms.
const SASL: &[&str] = &["plain", "scram-sha-256", "scram-sha-512"];

/// Keys that require each other.
pub(super) const REQUIRED_TOGETHER: [&[&str]; 2] =
    [&["certificate_file", "key_file"], &["sasl", "user", "password"]];

/// Keys of which at most one may be set: each is a login.
pub(super) const MUTUALLY_EXCLUSIVE: [&[&str]; 1] = [&["token", "nkey", "credentials"]];

const BROKER: &str = "URL of the broker";
const CA_FILE: &str = "CA bundle (PEM); requires a TLS scheme in `url`";
const SIGNING_SECRETS: &str =
    "Signing secrets (`whsec_…`), separated by spaces: Postrider signs each request with all of them";

/// Whether messages are sent there or received from there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    Destination,
    Source,
}

/// The keys of every client: certificates and timeouts, with what a CA bundle means for the URL, and with this default of the request
/// timeout.
pub(super) fn client(ca_file: &'static str, request_timeout: &'static str) -> [Key; 6] {
    [
        Key::string("ca_file", "\"/etc/ssl/ca.pem\"").about(ca_file),
        Key::new("trust", "\"both\"", ValueType::Choice(TRUST)).about(
            "Trusted certificates: the system roots, only the CAs of `ca_file`, or both; by default `bundle` with `ca_file`, otherwise `system`",
        ),
        Key::string("certificate_file", "\"/etc/ssl/postrider.pem\"").about("Client certificate (mTLS), in PEM"),
        Key::string("key_file", "\"/etc/ssl/postrider.key\"").about("Key of the client certificate, in PEM"),
        Key::new("connect_timeout", "\"5s\"", ValueType::Duration)
            .default("\"5s\"")
            .about("Timeout of name resolution, connection and TLS handshake together"),
        Key::new("request_timeout", "\"10s\"", ValueType::Duration)
            .default(request_timeout)
            .renamed_from("timeout")
            .about("Time to wait for a reply, or for the response to a webhook"),
    ]
}

/// The keys of a webhook receiver with this `url`, and with this default of the request timeout.
pub(super) fn webhook(url: Key, request_timeout: &'static str) -> Vec<Key> {
    let mut keys = vec![
        url,
        Key::secret("secret").about(SIGNING_SECRETS),
        Key::secret("authorization").about("Value of the `Authorization` header"),
        Key::flag("allow_http").about("Also send unencrypted, to `http://` URLs"),
        Key::new("allow_networks", "[\"10.0.0.0/8\"]", ValueType::Strings)
            .default("[]")
            .about("Private networks to which Postrider may also send"),
    ];
    keys.extend(client(CA_FILE, request_timeout));
    keys
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

/// The keys for the address, TLS, timeouts and authentication.
fn connection_keys(kind: Kind, direction: Direction) -> Vec<Key> {
    let mut keys = match kind {
        Kind::Stdout => return Vec::new(),
        Kind::Webhook if direction == Direction::Destination => {
            let url = Key::url("\"https://shop.example/hooks\"")
                .about("URL that addresses are paths below; without it, addresses are whole URLs");
            return webhook(url, REQUEST_TIMEOUT);
        }
        Kind::Webhook => return Vec::new(),
        Kind::RabbitMq => vec![Key::url("\"amqp://localhost:5672/%2f\"").required().about(BROKER)],
        Kind::Nats => vec![
            Key::url("\"nats://127.0.0.1:4222\"").required().about(BROKER),
            Key::secret("token").about("Token to authenticate with"),
            Key::secret("nkey").about("Seed of the NKey to authenticate with"),
            Key::secret("credentials")
                .about("Credentials to authenticate with: the content of a `.creds` file"),
        ],
        Kind::Redis => vec![Key::url("\"redis://127.0.0.1:6379\"").required().about(BROKER)],
        Kind::Kafka => vec![
            Key::url("\"kafka://127.0.0.1:9092\"").required().about(BROKER),
            Key::new("sasl", "\"scram-sha-512\"", ValueType::Choice(SASL))
                .about("SASL mechanism to authenticate with"),
            Key::string("user", "\"relay\"").about("User name for SASL"),
            Key::secret("password").about("Password for SASL"),
        ],
        Kind::Sqs | Kind::Sns => vec![
            Key::url("\"http://localhost:4566\"").about("Custom endpoint; by default that of AWS"),
            Key::string("region", "\"eu-central-1\"").about(
                "AWS region; by default that of the AWS configuration. Credentials come from the AWS default chain",
            ),
        ],
    };
    keys.extend(client(CA_FILE, REQUEST_TIMEOUT));
    keys
}
