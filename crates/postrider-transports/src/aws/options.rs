//! Which account, and how long to wait for it.

use crate::timeout::check_timeout;
use aws_credential_types::Credentials;
use postrider_core::Invalid;
use rustls::pki_types::{CertificateDer, pem::PemObject};
use std::{fmt, time::Duration};

/// Which account of AWS, where, and how long to wait. What is not given comes from the usual environment: `AWS_REGION`,
/// `AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY`, profiles, roles of containers and machines.
///
/// ```
/// # use postrider_transports::aws::AwsOptions;
/// let at_home = AwsOptions::new()
///     .with_region("eu-central-1")
///     .with_endpoint_url("http://127.0.0.1:4566")
///     .with_credentials("test", "test", None);
/// assert!(!format!("{at_home:?}").contains("test"));
/// ```
#[derive(Clone)]
#[must_use = "options do nothing until a transport has them"]
pub struct AwsOptions {
    pub(super) region: Option<String>,
    pub(super) endpoint_url: Option<String>,
    pub(super) credentials: Option<Credentials>,
    pub(super) roots: Option<String>,
    pub(super) connect_timeout: Duration,
    pub(crate) answer_timeout: Duration,
}

impl AwsOptions {
    /// Everything as the environment says.
    pub fn new() -> Self {
        Self {
            region: None,
            endpoint_url: None,
            credentials: None,
            roots: None,
            connect_timeout: Duration::from_secs(5),
            answer_timeout: Duration::from_secs(10),
        }
    }

    /// In this region, such as `eu-central-1`. A transport talks to one region.
    pub fn with_region(mut self, region: impl Into<String>) -> Self {
        self.region = Some(region.into());
        self
    }

    /// At this URL instead of Amazon's: servers on this machine, endpoints of a private network.
    pub fn with_endpoint_url(mut self, url: impl Into<String>) -> Self {
        self.endpoint_url = Some(url.into());
        self
    }

    /// With this key. It is never shown.
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

    /// Trusts these certificates, given as PEM, instead of those of the system.
    pub fn with_root_certificates(mut self, pem: impl Into<String>) -> Self {
        self.roots = Some(pem.into());
        self
    }

    /// Gives a new connection so long; 5 seconds unless said otherwise.
    pub fn with_connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// What is not answered after so long may have arrived, or not; 10 seconds unless said otherwise. It holds for each request; the
    /// relay's own timeout holds for a batch.
    pub fn with_answer_timeout(mut self, timeout: Duration) -> Self {
        self.answer_timeout = timeout;
        self
    }

    pub(crate) fn check(&self) -> Result<(), Invalid> {
        check_timeout("connect_timeout", self.connect_timeout)?;
        check_timeout("answer_timeout", self.answer_timeout)?;
        if let Some(region) = &self.region
            && (region.is_empty() || !region.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-'))
        {
            return Err(Invalid::rule("region", "is no region; write it as in eu-central-1"));
        }
        if let Some(url) = &self.endpoint_url
            && !is_endpoint(url)
        {
            let rule = "write http://host:port or https://host, without user and password";
            return Err(Invalid::rule("endpoint_url", rule));
        }
        if let Some(pem) = &self.roots
            && !are_certificates(pem)
        {
            return Err(Invalid::rule("root_certificates", "is no certificate in the format PEM"));
        }
        Ok(())
    }
}

fn is_endpoint(url: &str) -> bool {
    let rest = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"));
    rest.is_some_and(|rest| {
        let is_clean = rest.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'@');
        is_clean && !rest.is_empty() && !rest.starts_with(['/', ':', '?', '#'])
    })
}

/// Asked here, since the client panics at what it cannot read.
fn are_certificates(pem: &str) -> bool {
    let mut roots = rustls::RootCertStore::empty();
    let found = CertificateDer::pem_slice_iter(pem.as_bytes());
    let mut added = found.map(|each| each.is_ok_and(|certificate| roots.add(certificate).is_ok()));
    added.all(|is_good| is_good) && !roots.is_empty()
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
            .field("answer_timeout", &self.answer_timeout)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_makes_no_sense_is_refused_in_words() {
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
        assert!(wrong(options().with_answer_timeout(Duration::ZERO)).starts_with("answer_timeout: "));
        assert!(wrong(options().with_connect_timeout(Duration::MAX)).starts_with("connect_timeout: "));
        let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        for pem in ["", "nonsense", broken] {
            assert!(wrong(options().with_root_certificates(pem)).starts_with("root_certificates: "), "{pem}");
        }
        options().with_endpoint_url("https://[::1]:4566/x").with_region("eu-central-1").check().unwrap();
    }
}
