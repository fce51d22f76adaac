//! One choice for all clients that speak TLS through rustls.

/// Chooses how rustls computes, unless the application has. rustls panics at the first connection when it finds none to choose
/// from, or two, and which ones are compiled in depends on everything else in the program.
pub(crate) fn choose_crypto() {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // Somebody else may be faster, and then theirs is used.
        rustls::crypto::ring::default_provider().install_default().ok();
    }
}
