//! Verifies the server's certificate by the CAs that are trusted now.

use crate::certificate;
use postrider_core::{Invalid, Pem, Trust};
use rustls::{
    DigitallySignedStruct, Error, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::CryptoProvider,
    pki_types::{CertificateDer, ServerName, UnixTime},
};
use rustls_platform_verifier::Verifier;
use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

const OPTION: &str = "ca_bundle";

/// Trusts the CAs of a bundle as it is in its file now, with or without the system roots.
struct BundleVerifier {
    bundle: Pem,
    includes_system: bool,
    provider: Arc<CryptoProvider>,
    current: Mutex<Loaded>,
}

struct Loaded {
    content: Vec<u8>,
    verifier: Arc<dyn ServerCertVerifier>,
}

/// The verifier of a client.
pub(crate) fn verifier(
    trust: &Trust,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ServerCertVerifier>, Invalid> {
    let Some(bundle) = trust.bundle() else {
        return Ok(Arc::new(Verifier::new(Arc::clone(provider)).map_err(|error| no_system_roots(&error))?));
    };
    let includes_system = trust.includes_system();
    let loaded = load(bundle, certificate::read(OPTION, bundle)?, includes_system, provider)?;
    Ok(Arc::new(BundleVerifier {
        bundle: bundle.clone(),
        includes_system,
        provider: Arc::clone(provider),
        current: Mutex::new(loaded),
    }))
}

fn load(
    bundle: &Pem,
    content: Vec<u8>,
    includes_system: bool,
    provider: &Arc<CryptoProvider>,
) -> Result<Loaded, Invalid> {
    let certificates = certificate::certificates_in(OPTION, bundle, &content)?;
    let roots = certificate::roots(OPTION, bundle, &certificates)?;
    let provider = Arc::clone(provider);
    let verifier: Arc<dyn ServerCertVerifier> = if includes_system {
        let verifier = Verifier::new_with_extra_roots(certificates, provider);
        Arc::new(verifier.map_err(|error| no_system_roots(&error))?)
    } else {
        WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
            .build()
            .map_err(|error| Invalid::rule(OPTION, format!("{bundle} cannot be used: {error}")))?
    };
    Ok(Loaded { content, verifier })
}

pub(crate) fn no_system_roots(error: &dyn fmt::Display) -> Invalid {
    let rule = format!(
        "the system roots cannot be loaded: {error}; install the package `ca-certificates`, or set a CA bundle"
    );
    Invalid::rule("TLS", rule)
}

impl BundleVerifier {
    fn current(&self) -> Arc<dyn ServerCertVerifier> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if let Ok(content) = certificate::read(OPTION, &self.bundle)
            && content != current.content
            && let Ok(loaded) = load(&self.bundle, content, self.includes_system, &self.provider)
        {
            *current = loaded;
        }
        Arc::clone(&current.verifier)
    }

    /// The verifier that is loaded. Signatures do not depend on the trusted CAs.
    fn loaded(&self) -> Arc<dyn ServerCertVerifier> {
        Arc::clone(&self.current.lock().unwrap_or_else(PoisonError::into_inner).verifier)
    }
}

impl ServerCertVerifier for BundleVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.current().verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.loaded().verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.loaded().verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.loaded().supported_verify_schemes()
    }
}

impl fmt::Debug for BundleVerifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BundleVerifier")
            .field("bundle", &self.bundle)
            .field("includes_system", &self.includes_system)
            .finish_non_exhaustive()
    }
}
