//! What the answers of Kafka mean for a message.

use postrider_core::PublishError;
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};

/// It was not even put in line.
pub(super) fn unsent(error: &KafkaError, topic: &str) -> PublishError {
    match error.rdkafka_error_code() {
        Some(Code::MessageSizeTooLarge) => {
            PublishError::reject("it is larger than `with_message_bytes` allows").named("TooLarge")
        }
        Some(Code::UnknownTopic | Code::UnknownPartition | Code::UnknownTopicOrPartition) => no_topic(topic),
        _ => PublishError::retry(format!("the client does not take it: {}", said(error))),
    }
}

/// A broker, or the client, has said what became of it.
pub(super) fn reported(error: &KafkaError, topic: &str) -> PublishError {
    match error.rdkafka_error_code() {
        Some(Code::UnknownTopic | Code::UnknownPartition | Code::UnknownTopicOrPartition) => no_topic(topic),
        Some(Code::InvalidTopic) => PublishError::reject(said(error)).named("InvalidTopic"),
        code => match code.and_then(refusal) {
            Some(name) => PublishError::retry(format!("{topic}: {}", said(error))).named(name),
            // Silence, lost connections, and whatever has no name here: it may be in the log.
            None => PublishError::unknown(format!("{topic}: {}", said(error))),
        },
    }
}

/// The leader has refused to write, for this reason.
fn refusal(code: Code) -> Option<&'static str> {
    Some(match code {
        Code::NotEnoughReplicas => "NotEnoughReplicas",
        Code::NotLeaderForPartition | Code::LeaderNotAvailable => "NoLeader",
        Code::KafkaStorageError => "StorageError",
        Code::TopicAuthorizationFailed | Code::ClusterAuthorizationFailed => "AccessRefused",
        Code::PolicyViolation => "PolicyViolation",
        Code::ThrottlingQuotaExceeded => "Throttled",
        Code::InvalidRequiredAcks | Code::InvalidTimestamp | Code::UnsupportedForMessageFormat => {
            "InvalidRecord"
        }
        _ => return None,
    })
}

/// There is none of that name.
pub(super) fn no_topic(topic: &str) -> PublishError {
    PublishError::retry(missing(topic)).named("NoTopic")
}

/// Whether a broker has refused a record, and with it all that came in the same batch of records.
pub(super) fn is_of_a_record(error: &KafkaError) -> bool {
    matches!(error.rdkafka_error_code(), Some(Code::MessageSizeTooLarge | Code::InvalidRecord))
}

/// What Kafka says, without the client's words around it.
pub(super) fn said(error: &KafkaError) -> String {
    error.rdkafka_error_code().map_or_else(|| error.to_string(), |code| code.to_string())
}

/// How to make one.
pub(super) fn missing(topic: &str) -> String {
    format!("there is no topic {topic}: {}", create(topic))
}

/// The command that makes a topic.
pub(super) fn create(topic: &str) -> String {
    format!(
        "kafka-topics.sh --bootstrap-server … --create --topic {topic} --partitions 6 --replication-factor 3 \
         --config min.insync.replicas=2"
    )
}
