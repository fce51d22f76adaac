//! Certificates and keys in PEM.

use postrider_core::{Invalid, Pem};
use rustls::{
    RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};

/// The bytes of the file, or of the text.
pub(crate) fn read(option: &'static str, pem: &Pem) -> Result<Vec<u8>, Invalid> {
    match pem {
        Pem::File(path) => std::fs::read(path)
            .map_err(|error| Invalid::rule(option, format!("{} cannot be read: {error}", path.display()))),
        Pem::Text(text) => Ok(text.as_bytes().to_vec()),
        _ => Err(Invalid::rule(option, "is neither a file nor text")),
    }
}

/// The certificates of this option, at least one.
pub(crate) fn certificates(option: &'static str, pem: &Pem) -> Result<Vec<CertificateDer<'static>>, Invalid> {
    certificates_in(option, pem, &read(option, pem)?)
}

pub(crate) fn certificates_in(
    option: &'static str,
    pem: &Pem,
    content: &[u8],
) -> Result<Vec<CertificateDer<'static>>, Invalid> {
    let parsed: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(content).collect();
    // The parser's error may contain a line of the file, which may be the wrong file and hold a key.
    parsed
        .ok()
        .filter(|certificates| !certificates.is_empty())
        .ok_or_else(|| Invalid::rule(option, format!("{pem} contains no PEM certificate")))
}

pub(crate) fn private_key_in(
    option: &'static str,
    pem: &Pem,
    content: &[u8],
) -> Result<PrivateKeyDer<'static>, Invalid> {
    PrivateKeyDer::from_pem_slice(content)
        .map_err(|_| Invalid::rule(option, format!("{pem} contains no unencrypted PEM key")))
}

/// Checks that each certificate can be a CA.
pub(crate) fn roots(
    option: &'static str,
    pem: &Pem,
    certificates: &[CertificateDer<'static>],
) -> Result<RootCertStore, Invalid> {
    let mut store = RootCertStore::empty();
    for certificate in certificates {
        // The error texts of rustls speak of peers.
        store.add(certificate.clone()).map_err(|_| {
            Invalid::rule(option, format!("{pem} contains a certificate that cannot be parsed"))
        })?;
    }
    Ok(store)
}
