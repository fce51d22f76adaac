//! How the places of the file are made: a transport to each, and a source from it. Nobody is connected to yet.

#[cfg(feature = "sqs")]
pub(crate) mod aws;
#[cfg(feature = "kafka")]
pub(crate) mod kafka;
#[cfg(feature = "nats")]
pub(crate) mod nats;
#[cfg(feature = "rabbitmq")]
pub(crate) mod rabbitmq;
#[cfg(feature = "redis")]
pub(crate) mod redis;
pub(crate) mod webhook;
