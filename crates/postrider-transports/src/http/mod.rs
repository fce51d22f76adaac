//! Webhooks: messages that are sent as POST requests, and requests that are received as messages.
//!
//! With the feature `http` a relay sends them (`HttpTransport`), with `http-source` a consumer receives them (`HttpSource`); neither needs
//! the other. Both speak the HTTP binding of CloudEvents 1.0, and sign as [Standard Webhooks](signature).

mod binding;
pub mod signature;
#[cfg(feature = "http-source")]
mod source;
#[cfg(feature = "http")]
mod transport;

#[cfg(feature = "http-source")]
pub use source::{HttpSource, HttpSourceBuilder};
#[cfg(feature = "http")]
pub use transport::{HttpOptions, HttpTransport};
