//! The configuration of the AWS client, shared by SQS and SNS.

use super::{AwsOptions, ServiceError};
use aws_config::{
    BehaviorVersion, Region, SdkConfig, retry::RetryConfig,
    stalled_stream_protection::StalledStreamProtectionConfig, timeout::TimeoutConfig,
};
use aws_smithy_http_client::{
    Builder,
    tls::{Provider, TlsContext, TrustStore, rustls_provider::CryptoMode},
};
use std::time::Duration;

/// Shorter than servers keep idle connections. The outcome of a request on a connection that the server is closing is unknown.
const IDLE_TIMEOUT: Duration = Duration::from_secs(15);

/// Loads the client's configuration; the environment supplies what the options leave open.
pub(crate) async fn configure(options: &AwsOptions) -> Result<SdkConfig, ServiceError> {
    let mut trust_store = TrustStore::default();
    if let Some(pem) = &options.ca_certificates {
        trust_store = TrustStore::empty().with_pem_certificate(pem.as_bytes());
    }
    let tls = TlsContext::builder().with_trust_store(trust_store).build();
    let tls = tls.map_err(|error| ServiceError::unavailable(format!("TLS: {error}")))?;
    let http = Builder::new()
        .pool_idle_timeout(IDLE_TIMEOUT)
        .tls_provider(Provider::Rustls(CryptoMode::Ring))
        .tls_context(tls)
        .build_https();
    // One timeout for the whole request; stalled-stream protection would end requests that are slow and healthy.
    let timeouts = TimeoutConfig::builder()
        .connect_timeout(options.connect_timeout)
        .operation_timeout(options.response_timeout)
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
        None => Err(ServiceError::unavailable(
            "no AWS region is set: set AWS_REGION, or use `with_region`".to_owned(),
        )),
    }
}
