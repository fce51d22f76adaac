//! The TLS crypto provider shared by all clients that use rustls.

/// Installs the crypto provider of rustls unless the application has installed one. rustls panics at the first connection when no
/// provider is compiled in, or two, and which ones are compiled in depends on everything else in the program.
pub(crate) fn choose_crypto() {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // Another thread may install one first; then that one is used.
        rustls::crypto::ring::default_provider().install_default().ok();
    }
}
