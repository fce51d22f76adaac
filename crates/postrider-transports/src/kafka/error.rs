//! Classifies the errors of Kafka: which publish result each of them means.

use postrider_core::PublishError;
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};

/// The client refused to enqueue the message.
pub(super) fn from_enqueue(error: &KafkaError, topic: &str) -> PublishError {
    match error.rdkafka_error_code() {
        Some(Code::MessageSizeTooLarge) => PublishError::reject(
            "the message is larger than the limit: shrink it, or raise the limit with `with_message_bytes`",
        )
        .named("TooLarge"),
        Some(Code::UnknownTopic | Code::UnknownPartition | Code::UnknownTopicOrPartition) => {
            missing_topic(topic)
        }
        _ => PublishError::retry(format!(
            "topic {topic}: the client does not accept the message: {}",
            describe(error)
        )),
    }
}

/// A broker, or the client, reported that the message was not delivered.
pub(super) fn from_delivery_report(error: &KafkaError, topic: &str) -> PublishError {
    match error.rdkafka_error_code() {
        Some(Code::UnknownTopic | Code::UnknownPartition | Code::UnknownTopicOrPartition) => {
            missing_topic(topic)
        }
        Some(Code::InvalidTopic) => PublishError::reject(describe(error)).named("InvalidTopic"),
        Some(Code::TopicAuthorizationFailed | Code::ClusterAuthorizationFailed) => {
            forbidden_topic(topic, &describe(error))
        }
        code => match code.and_then(refusal_name) {
            Some(name) => PublishError::retry(format!("topic {topic}: {}", describe(error))).named(name),
            // Timeouts, lost connections, and every code that is not listed here: the record may be in the log.
            None => PublishError::unknown(format!("topic {topic}: {}", describe(error))),
        },
    }
}

/// The name of a code by which the leader refuses to write.
fn refusal_name(code: Code) -> Option<&'static str> {
    Some(match code {
        Code::NotEnoughReplicas => "NotEnoughReplicas",
        Code::NotLeaderForPartition | Code::LeaderNotAvailable => "NoLeader",
        Code::KafkaStorageError => "StorageError",
        Code::PolicyViolation => "PolicyViolation",
        Code::ThrottlingQuotaExceeded => "Throttled",
        Code::InvalidRequiredAcks | Code::InvalidTimestamp | Code::UnsupportedForMessageFormat => {
            "InvalidRecord"
        }
        _ => return None,
    })
}

/// The topic does not exist.
pub(super) fn missing_topic(topic: &str) -> PublishError {
    PublishError::address_unavailable(missing_topic_text(topic)).named("NoTopic")
}

/// The user may not write to the topic.
pub(super) fn forbidden_topic(topic: &str, why: &str) -> PublishError {
    PublishError::address_unavailable(format!(
        "topic {topic}: {why}; grant it: kafka-acls.sh --bootstrap-server … --add --allow-principal User:… --producer --topic {topic}"
    ))
    .named("AccessRefused")
}

/// Whether a broker refused one record, and with it all others of the same batch of records.
pub(super) fn is_record_refusal(error: &KafkaError) -> bool {
    matches!(error.rdkafka_error_code(), Some(Code::MessageSizeTooLarge | Code::InvalidRecord))
}

/// Kafka's own description of an error, without the words that the client adds.
pub(super) fn describe(error: &KafkaError) -> String {
    error.rdkafka_error_code().map_or_else(|| error.to_string(), |code| code.to_string())
}

/// That a topic is missing, and the command that creates it.
pub(super) fn missing_topic_text(topic: &str) -> String {
    format!("topic {topic} does not exist; create it: {}", create_topic_command(topic))
}

pub(super) fn create_topic_command(topic: &str) -> String {
    format!(
        "kafka-topics.sh --bootstrap-server … --create --topic {topic} --partitions 6 --replication-factor 3 \
         --config min.insync.replicas=2"
    )
}
