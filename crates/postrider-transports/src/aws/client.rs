//! The client's settings, as both services share them.

use super::{AwsOptions, Trouble};
use aws_config::{
    BehaviorVersion, Region, SdkConfig, retry::RetryConfig,
    stalled_stream_protection::StalledStreamProtectionConfig, timeout::TimeoutConfig,
};
use aws_smithy_http_client::{
    Builder,
    tls::{Provider, TlsContext, TrustStore, rustls_provider::CryptoMode},
};
use std::time::Duration;

/// Shorter than servers keep idle connections. A request that meets the end of one is one that nobody knows of.
const IDLE_FOR: Duration = Duration::from_secs(15);

/// Looks around for what the options leave open.
pub(crate) async fn configure(options: &AwsOptions) -> Result<SdkConfig, Trouble> {
    let mut trusted = TrustStore::default();
    if let Some(pem) = &options.roots {
        trusted = TrustStore::empty().with_pem_certificate(pem.as_bytes());
    }
    let tls = TlsContext::builder().with_trust_store(trusted).build();
    let tls = tls.map_err(|error| Trouble::down(format!("TLS: {error}")))?;
    let http = Builder::new()
        .pool_idle_timeout(IDLE_FOR)
        .tls_provider(Provider::Rustls(CryptoMode::Ring))
        .tls_context(tls)
        .build_https();
    // One bound for the whole of a request; that it may not stall besides would end what is slow and well.
    let timeouts = TimeoutConfig::builder()
        .connect_timeout(options.connect_timeout)
        .operation_timeout(options.answer_timeout)
        .build();
    let mut loader = aws_config::defaults(BehaviorVersion::latest())
        .http_client(http)
        .retry_config(RetryConfig::disabled())
        .timeout_config(timeouts)
        .stalled_stream_protection(StalledStreamProtectionConfig::disabled());
    if let Some(region) = &options.region {
        loader = loader.region(Region::new(region.clone()));
    }
    if let Some(url) = &options.endpoint_url {
        loader = loader.endpoint_url(url);
    }
    if let Some(credentials) = &options.credentials {
        loader = loader.credentials_provider(credentials.clone());
    }
    let config = loader.load().await;
    match config.region() {
        Some(_) => Ok(config),
        None => {
            Err(Trouble::down("no region is known: set AWS_REGION, or give one with with_region".to_owned()))
        }
    }
}
