//! TLS by the options of a client.

use postrider_core::{ClientOptions, Invalid};
use postrider_tls::rustls::ClientConfig;
use std::{error::Error, sync::Arc};

/// The TLS configuration of a client, if its URL has TLS. Certificates without TLS are an error: `scheme` is the one to write.
#[cfg(any(feature = "rabbitmq", feature = "redis"))]
pub(crate) fn config(
    client: &ClientOptions,
    has_tls: bool,
    scheme: &str,
) -> Result<Option<Arc<ClientConfig>>, Invalid> {
    if has_tls {
        return Ok(Some(Arc::new(postrider_tls::client_config(client)?)));
    }
    check_no_certificates(client, scheme)?;
    Ok(None)
}

/// Refuses certificates for a URL without TLS: `scheme` is the one to write.
#[cfg(any(feature = "kafka", feature = "rabbitmq", feature = "redis"))]
pub(crate) fn check_no_certificates(client: &ClientOptions, scheme: &str) -> Result<(), Invalid> {
    if client.has_certificates() {
        let rule = format!("has no TLS, but certificates are configured; write {scheme}://");
        return Err(Invalid::rule("url", rule));
    }
    Ok(())
}

/// The text of a connection error. If TLS failed, it begins with the cause and the remedy.
#[cfg(any(feature = "nats", feature = "rabbitmq", feature = "redis", feature = "http"))]
pub(crate) fn describe(error: &(dyn Error + 'static)) -> String {
    postrider_tls::describe(error).unwrap_or_else(|| error.to_string())
}
