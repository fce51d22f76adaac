//! The configuration of rustls.

use crate::{client_key::ClientKey, provider::provider, verifier::verifier};
use postrider_core::{ClientOptions, Invalid};
use rustls::{ClientConfig, RootCertStore, client::Resumption, crypto::CryptoProvider};
use std::sync::Arc;

/// The configuration of a client: the server's certificate is verified by `trust`, and the client certificate is shown if the server
/// asks for one.
///
/// # Errors
/// When a file is unreadable or has no certificate, a key does not match its certificate, or there are no system roots.
pub fn client_config(client: &ClientOptions) -> Result<ClientConfig, Invalid> {
    client_config_with(client, &provider()?)
}

/// The same with another crypto provider.
///
/// # Errors
/// As [`client_config`].
pub fn client_config_with(
    client: &ClientOptions,
    provider: &Arc<CryptoProvider>,
) -> Result<ClientConfig, Invalid> {
    let verifier = verifier(client.trust(), provider)?;
    let builder = ClientConfig::builder_with_provider(Arc::clone(provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| Invalid::rule("TLS", format!("cannot be set up: {error}")))?
        // Not weaker than the usual verification: it is that of the platform, or that of rustls with the CAs of a bundle.
        .dangerous()
        .with_custom_certificate_verifier(verifier);
    let mut config = match client.client_certificate() {
        None => builder.with_no_client_auth(),
        Some(certificate) => {
            builder.with_client_cert_resolver(Arc::new(ClientKey::load(certificate, provider)?))
        }
    };
    if client.has_certificates() {
        // A resumed session verifies no certificate and shows none: it would outlive a rotation.
        config.resumption = Resumption::disabled();
    }
    Ok(config)
}

/// A configuration that trusts no server, for clients that may be asked for TLS although nothing in their options says so.
///
/// # Errors
/// When there is no crypto provider.
pub fn distrusting_config() -> Result<ClientConfig, Invalid> {
    let builder = ClientConfig::builder_with_provider(provider()?)
        .with_safe_default_protocol_versions()
        .map_err(|error| Invalid::rule("TLS", format!("cannot be set up: {error}")))?;
    Ok(builder.with_root_certificates(RootCertStore::empty()).with_no_client_auth())
}
