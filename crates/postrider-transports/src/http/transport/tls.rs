//! TLS: the certificates that are trusted.

use postrider_core::Invalid;
use rustls::{
    ClientConfig,
    crypto::{CryptoProvider, ring},
    pki_types::{CertificateDer, pem::PemObject},
};
use rustls_platform_verifier::Verifier;
use std::sync::Arc;

/// The certificates in a PEM text.
pub(super) fn certificates(pem: &str) -> Result<Vec<CertificateDer<'static>>, Invalid> {
    let wrong = |rule: String| Invalid::rule("certificate", rule);
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    match read {
        Ok(read) if !read.is_empty() => Ok(read),
        Ok(_) => Err(wrong("the text contains no certificate; pass PEM".to_owned())),
        Err(error) => Err(wrong(format!("cannot be parsed: {error:?}; pass PEM"))),
    }
}

/// Trusts the system roots, and `roots`. Uses the application's crypto provider, if it has installed one.
pub(super) fn config(roots: Vec<CertificateDer<'static>>) -> Result<ClientConfig, Invalid> {
    let wrong = |error: rustls::Error| {
        let rule = format!(
            "cannot be set up: {error}; install the system's CA certificates, or add some with `trust`"
        );
        Invalid::rule("TLS", rule)
    };
    let provider = CryptoProvider::get_default().cloned();
    let provider = provider.unwrap_or_else(|| Arc::new(ring::default_provider()));
    let verifier = Verifier::new_with_extra_roots(roots, Arc::clone(&provider)).map_err(wrong)?;
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    // Not weaker than the usual verification: it is that of the platform.
    let builder = builder.map_err(wrong)?.dangerous().with_custom_certificate_verifier(Arc::new(verifier));
    let mut config = builder.with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}
