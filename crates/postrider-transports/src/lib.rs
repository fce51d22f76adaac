//! Transports, to which a relay publishes, and sources, from which a consumer receives.
//!
//! Each broker is a module behind a Cargo feature and is independent of the others. All of them pass the transport and source suites of
//! the test kit against the real server. [`Outgoing`](postrider_core::Outgoing) decides what a message looks like on the wire; the
//! binding of a transport only names the attributes.
//!
//! Applications depend on the crate `postrider`, which re-exports all of this.

#[cfg(any(feature = "sqs", feature = "sns"))]
pub mod aws;
#[cfg(any(feature = "kafka", feature = "nats", feature = "rabbitmq", feature = "redis", feature = "sqs"))]
mod byte_budget;
#[cfg(any(feature = "http", feature = "http-source"))]
pub mod http;
#[cfg(any(feature = "kafka", feature = "nats", feature = "redis"))]
mod in_flight_limit;
#[cfg(feature = "kafka")]
pub mod kafka;
pub mod memory;
#[cfg(feature = "nats")]
pub mod nats;
#[cfg(feature = "rabbitmq")]
pub mod rabbitmq;
#[cfg(feature = "redis")]
pub mod redis;
#[cfg(any(feature = "kafka", feature = "nats", feature = "rabbitmq", feature = "redis", feature = "sqs"))]
mod session;
#[cfg(feature = "sns")]
pub mod sns;
#[cfg(feature = "sqs")]
pub mod sqs;
pub mod stdout;
#[cfg(any(
    feature = "http",
    feature = "kafka",
    feature = "nats",
    feature = "rabbitmq",
    feature = "redis",
    feature = "sqs",
    feature = "sns"
))]
mod timeout;
#[cfg(any(feature = "http", feature = "kafka", feature = "nats", feature = "rabbitmq", feature = "redis"))]
mod tls;
