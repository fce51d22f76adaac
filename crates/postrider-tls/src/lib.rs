//! TLS of the clients: turns [`ClientOptions`](postrider_core::ClientOptions) into a configuration of rustls.
//!
//! **One rule of trust.** A client trusts the system roots, the CAs of a bundle, or both, as [`Trust`](postrider_core::Trust) says. The
//! host name is always verified. The system roots are those of `rustls-platform-verifier`: on macOS and Windows the operating system
//! itself decides, with the certificates that an administrator has added or withdrawn; elsewhere they are the files that OpenSSL
//! uses, and `SSL_CERT_FILE` and `SSL_CERT_DIR` replace them. With `Trust::Only` they are not even loaded.
//!
//! **Rotation.** Files are read again for each handshake. While a changed file cannot be used, because it is being written or its key
//! does not match yet, the last good content counts. System roots are read once for each client.
//!
//! **No global state.** The crypto provider is passed to every configuration and never installed for the process: aws-lc-rs with the
//! feature `aws-lc-rs`, ring with the feature `ring` (the default), and without either the provider that the application has installed.

mod certificate;
mod client_key;
mod config;
mod failure;
mod pem;
mod provider;
mod system_roots;
mod verifier;

pub use config::{client_config, client_config_with, distrusting_config};
pub use failure::describe;
pub use pem::{ca_bundle, client_certificate};
pub use provider::{PROVIDER, provider};
pub use rustls;
