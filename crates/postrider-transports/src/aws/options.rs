//! Settings of the AWS client: account, region and timeouts.

use crate::timeout::check_timeout;
use aws_credential_types::Credentials;
use postrider_core::Invalid;
use rustls::pki_types::{CertificateDer, pem::PemObject};
use std::{fmt, time::Duration};

/// Account, region and timeouts of the AWS client. Settings that are not given come from the usual environment: `AWS_REGION`,
/// `AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY`, profiles, roles of containers and machines.
///
/// ```
/// # use postrider_transports::aws::AwsOptions;
/// let local = AwsOptions::new()
///     .with_region("eu-central-1")
///     .with_endpoint_url("http://127.0.0.1:4566")
///     .with_credentials("test", "test", None);
/// assert!(!format!("{local:?}").contains("test"));
/// ```
#[derive(Clone)]
#[must_use = "options do nothing until a transport has them"]
pub struct AwsOptions {
    pub(super) region: Option<String>,
    pub(super) endpoint_url: Option<String>,
    pub(super) credentials: Option<Credentials>,
    pub(super) ca_certificates: Option<String>,
    pub(super) connect_timeout: Duration,
    pub(crate) response_timeout: Duration,
}

impl AwsOptions {
    /// All settings from the environment.
    pub fn new() -> Self {
        Self {
            region: None,
            endpoint_url: None,
            credentials: None,
            ca_certificates: None,
            connect_timeout: Duration::from_secs(5),
            response_timeout: Duration::from_secs(10),
        }
    }

    /// AWS region, such as `eu-central-1`. A transport uses one region.
    pub fn with_region(mut self, region: impl Into<String>) -> Self {
        self.region = Some(region.into());
        self
    }

    /// Endpoint URL, used instead of Amazon's: local servers, endpoints of a private network.
    pub fn with_endpoint_url(mut self, url: impl Into<String>) -> Self {
        self.endpoint_url = Some(url.into());
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

    /// CA bundle (PEM text), used instead of the system roots.
    pub fn with_ca_bundle(mut self, pem: impl Into<String>) -> Self {
        self.ca_certificates = Some(pem.into());
        self
    }

    /// Connect timeout of a new connection. Default: 5 seconds.
    pub fn with_connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// Response timeout of each request: messages without a response may or may not have arrived. Default: 10 seconds. The relay's own
    /// timeout applies to a whole batch.
    pub fn with_response_timeout(mut self, timeout: Duration) -> Self {
        self.response_timeout = timeout;
        self
    }

    pub(crate) fn check(&self) -> Result<(), Invalid> {
        check_timeout("connect_timeout", self.connect_timeout)?;
        check_timeout("response_timeout", self.response_timeout)?;
        if let Some(region) = &self.region
            && (region.is_empty() || !region.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-'))
        {
            return Err(Invalid::rule("region", "is not a region name; write it like eu-central-1"));
        }
        if let Some(url) = &self.endpoint_url
            && !is_endpoint(url)
        {
            let rule = "write http://host:port or https://host, without user and password";
            return Err(Invalid::rule("endpoint_url", rule));
        }
        if let Some(pem) = &self.ca_certificates
            && !are_certificates(pem)
        {
            return Err(Invalid::rule("root_certificates", "contains no valid PEM certificate"));
        }
        Ok(())
    }
}

fn is_endpoint(url: &str) -> bool {
    let rest = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"));
    rest.is_some_and(|rest| {
        let clean = rest.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'@');
        clean && !rest.is_empty() && !rest.starts_with(['/', ':', '?', '#'])
    })
}

/// Checked here, because the client panics on certificates that it cannot read.
fn are_certificates(pem: &str) -> bool {
    let mut ca_certificates = rustls::RootCertStore::empty();
    let found = CertificateDer::pem_slice_iter(pem.as_bytes());
    let mut added = found.map(|each| each.is_ok_and(|certificate| ca_certificates.add(certificate).is_ok()));
    added.all(|is_good| is_good) && !ca_certificates.is_empty()
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
            .field("endpoint_url", &self.endpoint_url)
            .field("response_timeout", &self.response_timeout)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn check_names_invalid_option() {
        let wrong = |options: AwsOptions| options.check().unwrap_err().to_string();
        let options = AwsOptions::new;
        assert!(wrong(options().with_region("")).starts_with("region: "));
        assert!(wrong(options().with_region("eu central")).starts_with("region: "));
        for url in
            ["", "127.0.0.1:1", "ftp://host", "http://", "http://a:s3cret@host", "http://a b", "http://:1"]
        {
            let error = wrong(options().with_endpoint_url(url));
            assert!(error.starts_with("endpoint_url: ") && !error.contains("s3cret"), "{error}");
        }
        assert!(wrong(options().with_response_timeout(Duration::ZERO)).starts_with("response_timeout: "));
        assert!(wrong(options().with_connect_timeout(Duration::MAX)).starts_with("connect_timeout: "));
        let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        for pem in ["", "nonsense", broken] {
            assert!(wrong(options().with_ca_bundle(pem)).starts_with("root_certificates: "), "{pem}");
        }
        options().with_endpoint_url("https://[::1]:4566/x").with_region("eu-central-1").check().unwrap();
    }
}
