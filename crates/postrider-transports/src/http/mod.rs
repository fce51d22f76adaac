//! Webhooks: a transport that sends messages as POST requests, and a source that receives POST requests as messages.
//!
//! With the feature `http` a relay sends webhooks (`HttpTransport`), with `http-source` a consumer receives them (`HttpSource`); neither needs
//! the other. Both use the HTTP binding of CloudEvents 1.0, and the signatures of [Standard Webhooks](signature).

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
