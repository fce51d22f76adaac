//! The same trust and the same client certificate as PEM text, for clients that make their own configuration of TLS.

use crate::{certificate, system_roots::system_roots};
use base64::{Engine, engine::general_purpose::STANDARD};
use postrider_core::{ClientCertificate, Invalid, Trust};
use rustls::pki_types::CertificateDer;

/// All CAs that are trusted, in PEM.
///
/// # Errors
/// When the file is unreadable or has no certificate, or there are no system roots.
pub fn ca_bundle(trust: &Trust) -> Result<String, Invalid> {
    let mut trusted = if trust.includes_system() { system_roots()? } else { Vec::new() };
    if let Some(bundle) = trust.bundle() {
        let certificates = certificate::certificates("ca_bundle", bundle)?;
        certificate::roots("ca_bundle", bundle, &certificates)?;
        trusted.extend(certificates);
    }
    Ok(trusted.iter().map(encode).collect())
}

/// The client certificate and its key, both in PEM.
///
/// # Errors
/// When a file is unreadable, has no certificate or no unencrypted key, or the key does not match the certificate.
pub fn client_certificate(options: &ClientCertificate) -> Result<(String, String), Invalid> {
    let option = "client_certificate";
    crate::client_key::ClientKey::load(options, &crate::provider()?)?;
    let text = |pem| {
        let content = certificate::read(option, pem)?;
        String::from_utf8(content).map_err(|_| Invalid::rule(option, format!("{pem} is not text")))
    };
    Ok((text(&options.certificate)?, text(&options.key)?))
}

fn encode(certificate: &CertificateDer<'_>) -> String {
    let encoded = STANDARD.encode(certificate);
    let mut pem = String::with_capacity(encoded.len() + encoded.len() / 64 + 60);
    pem.push_str("-----BEGIN CERTIFICATE-----\n");
    for line in encoded.as_bytes().chunks(64) {
        pem.push_str(&String::from_utf8_lossy(line));
        pem.push('\n');
    }
    pem.push_str("-----END CERTIFICATE-----\n");
    pem
}
