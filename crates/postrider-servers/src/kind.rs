//! The kinds of servers that tests can use.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use crate::{Durability, Kafka, Moto, Nats, Postgres, RabbitMq, Redis, ServerSpec};

/// A kind of server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// PostgreSQL.
    Postgres,
    /// RabbitMQ.
    RabbitMq,
    /// NATS with JetStream.
    Nats,
    /// Redis.
    Redis,
    /// Kafka, emulated by Tansu.
    Kafka,
    /// SQS and SNS, emulated by moto.
    Sqs,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 6] =
        [Self::Postgres, Self::RabbitMq, Self::Nats, Self::Redis, Self::Kafka, Self::Sqs];

    /// The name on the command line and of its folder, and the prefix of its test files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Postgres => "postgres",
            Self::RabbitMq => "rabbitmq",
            Self::Nats => "nats",
            Self::Redis => "redis",
            Self::Kafka => "kafka",
            Self::Sqs => "sqs",
        }
    }

    /// The environment variable with the URL of the shared server.
    pub fn url_variable(self) -> &'static str {
        match self {
            Self::Postgres => "POSTRIDER_TEST_POSTGRES_URL",
            Self::RabbitMq => "POSTRIDER_TEST_RABBITMQ_URL",
            Self::Nats => "POSTRIDER_TEST_NATS_URL",
            Self::Redis => "POSTRIDER_TEST_REDIS_URL",
            Self::Kafka => "POSTRIDER_TEST_KAFKA_URL",
            Self::Sqs => "POSTRIDER_TEST_SQS_URL",
        }
    }

    /// The environment variable with the folder of its programs, for tests that start their own server.
    pub fn programs_variable(self) -> &'static str {
        match self {
            Self::Postgres => "POSTRIDER_TEST_POSTGRES_PROGRAMS",
            Self::RabbitMq => "POSTRIDER_TEST_RABBITMQ_PROGRAMS",
            Self::Nats => "POSTRIDER_TEST_NATS_PROGRAMS",
            Self::Redis => "POSTRIDER_TEST_REDIS_PROGRAMS",
            Self::Kafka => "POSTRIDER_TEST_KAFKA_PROGRAMS",
            Self::Sqs => "POSTRIDER_TEST_SQS_PROGRAMS",
        }
    }

    /// How to run it for tests, with the programs in the folder `programs`.
    pub fn spec(self, programs: &Path) -> Box<dyn ServerSpec> {
        match self {
            Self::Postgres => Box::new(Postgres::new(programs, Durability::Relaxed)),
            Self::RabbitMq => Box::new(RabbitMq::new(programs)),
            Self::Nats => Box::new(Nats::new(programs)),
            Self::Redis => Box::new(Redis::new(programs)),
            Self::Kafka => Box::new(Kafka::new(programs)),
            Self::Sqs => Box::new(Moto::new(programs)),
        }
    }
}

impl FromStr for Kind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|kind| kind.name() == text).ok_or_else(|| {
            let known = Self::ALL.map(Self::name).join(", ");
            format!("unknown server `{text}`; known servers: {known}")
        })
    }
}

/// The product name.
impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Postgres => "PostgreSQL",
            Self::RabbitMq => "RabbitMQ",
            Self::Nats => "NATS",
            Self::Redis => "Redis",
            Self::Kafka => "Tansu (Kafka)",
            Self::Sqs => "moto (SQS, SNS)",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_follow_the_name() {
        for kind in Kind::ALL {
            let name = kind.name().to_uppercase();
            assert_eq!(kind.url_variable(), format!("POSTRIDER_TEST_{name}_URL"));
            assert_eq!(kind.programs_variable(), format!("POSTRIDER_TEST_{name}_PROGRAMS"));
            assert_eq!(kind.name().parse(), Ok(kind));
        }
    }

    #[test]
    fn an_unknown_name_lists_the_known_ones() {
        let error = "pulsar".parse::<Kind>().unwrap_err();
        assert_eq!(
            error,
            "unknown server `pulsar`; known servers: postgres, rabbitmq, nats, redis, kafka, sqs"
        );
    }
}
