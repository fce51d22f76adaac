//! The configuration of the AWS client, shared by SQS and SNS.

use super::{AwsOptions, ServiceError, http::http_client};
use aws_config::{
    BehaviorVersion, Region, SdkConfig, retry::RetryConfig,
    stalled_stream_protection::StalledStreamProtectionConfig, timeout::TimeoutConfig,
};

/// Loads the client's configuration; the environment supplies what the options leave open.
pub(crate) async fn configure(options: &AwsOptions) -> Result<SdkConfig, ServiceError> {
    let http = http_client(&options.client).map_err(|error| ServiceError::unavailable(error.to_string()))?;
    // One timeout for the whole request; stalled-stream protection would end requests that are slow and healthy.
    let timeouts = TimeoutConfig::builder()
        .connect_timeout(options.client.connect_timeout())
        .operation_timeout(options.request_timeout())
        .build();
    let mut loader = aws_config::defaults(BehaviorVersion::latest())
        .http_client(http)
        .retry_config(RetryConfig::disabled())
        .timeout_config(timeouts)
        .stalled_stream_protection(StalledStreamProtectionConfig::disabled());
    if let Some(region) = &options.region {
        loader = loader.region(Region::new(region.clone()));
    }
    if let Some(url) = options.client.url() {
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
