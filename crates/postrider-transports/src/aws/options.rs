//! Settings of the AWS client: account, region and timeouts.

use crate::timeout::request_timeout;
use aws_credential_types::Credentials;
use postrider_core::{ClientOptions, Invalid};
use std::{fmt, time::Duration};

/// Account, region and timeouts of the AWS client. Settings that are not given come from the usual environment: `AWS_REGION`,
/// `AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY`, profiles, roles of containers and machines.
///
/// ```
/// # use postrider_transports::aws::AwsOptions;
/// let local = AwsOptions::new()
///     .with_client("http://127.0.0.1:4566")
///     .with_region("eu-central-1")
///     .with_credentials("test", "test", None);
/// assert!(!format!("{local:?}").contains("test"));
/// ```
#[derive(Clone)]
#[must_use = "options do nothing until a transport has them"]
pub struct AwsOptions {
    pub(super) region: Option<String>,
    pub(super) client: ClientOptions,
    pub(super) credentials: Option<Credentials>,
}

impl AwsOptions {
    /// All settings from the environment.
    pub fn new() -> Self {
        Self { region: None, client: ClientOptions::default(), credentials: None }
    }

    /// AWS region, such as `eu-central-1`. A transport uses one region.
    pub fn with_region(mut self, region: impl Into<String>) -> Self {
        self.region = Some(region.into());
        self
    }

    /// Certificates and timeouts. Its URL, if it has one, is the endpoint that is used instead of Amazon's: a local server, an endpoint of a
    /// private network. A message without a response within the request timeout may or may not have arrived; the relay's own timeout
    /// applies to a whole batch.
    pub fn with_client(mut self, client: impl Into<ClientOptions>) -> Self {
        self.client = client.into();
        self
    }

    /// Access key (credentials). It is never logged or printed.
    pub fn with_credentials(
        mut self,
        access_key_id: impl Into<String>,
        secret_access_key: impl Into<String>,
        session_token: Option<String>,
    ) -> Self {
        let (id, secret) = (access_key_id.into(), secret_access_key.into());
        self.credentials = Some(Credentials::new(id, secret, session_token, None, "options"));
        self
    }

    pub(crate) fn check(&self) -> Result<(), Invalid> {
        self.client.check()?;
        if self.client.credentials().is_some() {
            let rule = "are not used by AWS; set an access key with `AwsOptions::with_credentials`";
            return Err(Invalid::rule("credentials", rule));
        }
        if let Some(region) = &self.region
            && (region.is_empty() || !region.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-'))
        {
            return Err(Invalid::rule("region", "is not a region name; write it like eu-central-1"));
        }
        if let Some(url) = self.client.url()
            && !is_endpoint(url)
        {
            let rule = "write http://host:port or https://host, without user and password";
            return Err(Invalid::rule("url", rule));
        }
        if self.client.has_certificates() {
            postrider_tls::client_config(&self.client)?;
        }
        Ok(())
    }

    #[cfg(feature = "sqs")]
    pub(crate) fn connect_timeout(&self) -> Duration {
        self.client.connect_timeout()
    }

    pub(crate) fn request_timeout(&self) -> Duration {
        request_timeout(&self.client)
    }
}

fn is_endpoint(url: &str) -> bool {
    let rest = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"));
    rest.is_some_and(|rest| {
        let clean = rest.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'@');
        clean && !rest.is_empty() && !rest.starts_with(['/', ':', '?', '#'])
    })
}

impl Default for AwsOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for AwsOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AwsOptions")
            .field("region", &self.region)
            .field("client", &self.client)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use postrider_core::Pem;

    #[test]
    fn check_names_invalid_option() {
        let wrong = |options: AwsOptions| options.check().unwrap_err().to_string();
        let options = AwsOptions::new;
        assert!(wrong(options().with_region("")).starts_with("region: "));
        assert!(wrong(options().with_region("eu central")).starts_with("region: "));
        for url in
            ["", "127.0.0.1:1", "ftp://host", "http://", "http://a:s3cret@host", "http://a b", "http://:1"]
        {
            let error = wrong(options().with_client(url));
            assert!(error.starts_with("url: ") && !error.contains("s3cret"), "{error}");
        }
        let client = ClientOptions::default;
        let zero = client().with_request_timeout(Duration::ZERO);
        assert!(wrong(options().with_client(zero)).starts_with("request_timeout: "));
        let user = client().with_password("ann", "s3cret");
        assert!(wrong(options().with_client(user)).starts_with("credentials: "));
        let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        for pem in ["", "nonsense", broken] {
            let client = client().with_ca_bundle(Pem::text(pem));
            assert!(wrong(options().with_client(client)).starts_with("ca_bundle: "), "{pem}");
        }
        options().with_client("https://[::1]:4566/x").with_region("eu-central-1").check().unwrap();
    }
}
