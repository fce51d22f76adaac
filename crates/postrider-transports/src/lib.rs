//! Where Postrider's messages go, and where they come from.
//!
//! Each transport is a module of its own, behind a feature of its own, and knows nothing of the others. All of them pass the
//! transport suite of the test kit, against the real server. What a message looks like on the wire is decided by
//! [`Outgoing`](postrider_core::Outgoing); a transport's binding only gives names to the attributes.
//!
//! Users add the crate `postrider`, which re-exports all of this.

#[cfg(any(feature = "sqs", feature = "sns"))]
pub mod aws;
#[cfg(any(feature = "kafka", feature = "nats", feature = "rabbitmq", feature = "redis"))]
mod file;
#[cfg(any(feature = "http", feature = "http-source"))]
pub mod http;
#[cfg(feature = "kafka")]
pub mod kafka;
#[cfg(any(feature = "kafka", feature = "nats", feature = "redis"))]
mod line;
pub mod memory;
#[cfg(feature = "nats")]
pub mod nats;
#[cfg(feature = "rabbitmq")]
pub mod rabbitmq;
#[cfg(feature = "redis")]
pub mod redis;
#[cfg(feature = "sns")]
pub mod sns;
#[cfg(feature = "sqs")]
pub mod sqs;
pub mod stdout;
#[cfg(any(
    feature = "kafka",
    feature = "nats",
    feature = "rabbitmq",
    feature = "redis",
    feature = "sqs",
    feature = "sns"
))]
mod timeout;
#[cfg(any(feature = "nats", feature = "redis"))]
mod tls;
