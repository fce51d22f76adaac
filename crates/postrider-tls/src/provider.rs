//! The crypto provider.

use postrider_core::Invalid;
use rustls::crypto::CryptoProvider;
use std::sync::Arc;

/// The name of the crypto provider that the features select; `None` leaves it to the application.
pub const PROVIDER: Option<&str> = if cfg!(feature = "aws-lc-rs") {
    Some("aws-lc-rs")
} else if cfg!(feature = "ring") {
    Some("ring")
} else {
    None
};

/// The crypto provider that the features select, otherwise the one that the application has installed.
///
/// # Errors
/// When there is none.
pub fn provider() -> Result<Arc<CryptoProvider>, Invalid> {
    #[cfg(feature = "aws-lc-rs")]
    return Ok(Arc::new(rustls::crypto::aws_lc_rs::default_provider()));
    #[cfg(all(feature = "ring", not(feature = "aws-lc-rs")))]
    return Ok(Arc::new(rustls::crypto::ring::default_provider()));
    #[cfg(not(any(feature = "ring", feature = "aws-lc-rs")))]
    return CryptoProvider::get_default().cloned().ok_or_else(|| {
        Invalid::rule(
            "TLS",
            "has no crypto provider; enable the feature `ring` or `aws-lc-rs`, or install one",
        )
    });
}
