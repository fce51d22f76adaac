//! The client certificate, which follows its files.

use crate::certificate;
use postrider_core::{ClientCertificate, Invalid};
use rustls::{SignatureScheme, client::ResolvesClientCert, crypto::CryptoProvider, sign::CertifiedKey};
use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

const OPTION: &str = "client_certificate";

/// Shows the certificate as it is in its files now.
pub(crate) struct ClientKey {
    options: ClientCertificate,
    provider: Arc<CryptoProvider>,
    current: Mutex<Loaded>,
}

struct Loaded {
    content: [Vec<u8>; 2],
    key: Arc<CertifiedKey>,
}

impl ClientKey {
    pub(crate) fn load(options: &ClientCertificate, provider: &Arc<CryptoProvider>) -> Result<Self, Invalid> {
        let loaded = load(options, read(options)?, provider)?;
        let (options, provider) = (options.clone(), Arc::clone(provider));
        Ok(Self { options, provider, current: Mutex::new(loaded) })
    }

    fn current(&self) -> Arc<CertifiedKey> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if let Ok(content) = read(&self.options)
            && content != current.content
            && let Ok(loaded) = load(&self.options, content, &self.provider)
        {
            *current = loaded;
        }
        Arc::clone(&current.key)
    }
}

fn read(options: &ClientCertificate) -> Result<[Vec<u8>; 2], Invalid> {
    Ok([certificate::read(OPTION, &options.certificate)?, certificate::read(OPTION, &options.key)?])
}

fn load(
    options: &ClientCertificate,
    content: [Vec<u8>; 2],
    provider: &CryptoProvider,
) -> Result<Loaded, Invalid> {
    let [chain, key] = &content;
    let chain = certificate::certificates_in(OPTION, &options.certificate, chain)?;
    let key = certificate::private_key_in(OPTION, &options.key, key)?;
    let key = CertifiedKey::from_der(chain, key, provider)
        .map_err(|error| Invalid::rule(OPTION, format!("{} cannot be used: {error}", options.certificate)))?;
    Ok(Loaded { content, key: Arc::new(key) })
}

impl ResolvesClientCert for ClientKey {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(self.current())
    }

    fn has_certs(&self) -> bool {
        true
    }
}

impl fmt::Debug for ClientKey {
    /// Omits the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientKey").field("options", &self.options).finish_non_exhaustive()
    }
}
