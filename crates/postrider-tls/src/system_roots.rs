//! The system roots as certificates, for clients that make their own configuration of TLS.

use crate::verifier::no_system_roots;
use postrider_core::Invalid;
use rustls::pki_types::CertificateDer;

/// The system roots. On macOS and Windows they are the certificates in the stores of the operating system.
pub(crate) fn system_roots() -> Result<Vec<CertificateDer<'static>>, Invalid> {
    let loaded = rustls_native_certs::load_native_certs();
    if loaded.certs.is_empty() {
        let error = loaded.errors.first().map_or_else(|| "none found".to_owned(), ToString::to_string);
        return Err(no_system_roots(&error));
    }
    Ok(loaded.certs)
}
