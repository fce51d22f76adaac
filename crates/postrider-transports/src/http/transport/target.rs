//! Resolves a destination to the URL that a message is sent to.

use super::guard::{AddressGuard, PrivateAddress};
use postrider_core::Invalid;
use reqwest::Url;

/// The reason why a destination cannot be sent to.
#[derive(Debug, thiserror::Error)]
pub(super) enum TargetError {
    #[error("{0}")]
    Url(String),
    #[error("http is not encrypted: use https, or allow it with `allow_http`")]
    PlainHttp,
    #[error(transparent)]
    Private(#[from] PrivateAddress),
}

/// The destinations that are allowed: any URL, or paths below a base URL.
#[derive(Debug, Clone, Default)]
pub(super) struct Targets {
    /// If set, destinations are paths below this URL.
    base: Option<Url>,
    pub(super) allows_http: bool,
}

impl Targets {
    pub(super) fn below(base: &str) -> Result<Self, Invalid> {
        let invalid = |rule: String| Err(Invalid::rule("base URL", rule));
        // The error does not repeat the URL, which may contain a password.
        let url = match Url::parse(base) {
            Ok(url) => url,
            Err(error) => {
                return invalid(format!("is not a URL: {error}; write it like https://example.com/hooks"));
            }
        };
        if url.query().is_some() || url.fragment().is_some() {
            return invalid(
                "ends with a query or a fragment; remove it: destinations are appended to the base URL"
                    .to_owned(),
            );
        }
        Ok(Self { base: Some(url), allows_http: false })
    }

    /// Whether all destinations are at one host.
    pub(super) fn has_base(&self) -> bool {
        self.base.is_some()
    }

    /// Checks that the base URL may be sent to.
    pub(super) fn check(&self, guard: &AddressGuard) -> Result<(), Invalid> {
        let Some(base) = &self.base else { return Ok(()) };
        self.check_url(base, guard).map_err(|error| Invalid::rule("base URL", error.to_string()))
    }

    /// The URL of a destination.
    pub(super) fn url(&self, destination: &str, guard: &AddressGuard) -> Result<Url, TargetError> {
        let refused = |why: &str| Err(TargetError::Url(why.to_owned()));
        if destination.contains(|c: char| c.is_control()) || destination.trim() != destination {
            return refused("the URL has control characters, or white space around it; remove them");
        }
        if destination.contains('#') {
            return refused("the URL has a fragment, which is never sent: write # as %23");
        }
        let path = destination.split('?').next().unwrap_or_default();
        // A key or tenant of a message must not lead out of the path that the template names.
        if path.split(['/', '\\']).any(is_dots) {
            return refused(
                "the URL has a path segment . or .., which would lead to another path; remove it",
            );
        }
        let url = match &self.base {
            Some(base) if destination.is_empty() => Ok(base.clone()),
            Some(base) => {
                let (base, path) = (base.as_str().trim_end_matches('/'), destination.trim_start_matches('/'));
                Url::parse(&format!("{base}/{path}"))
            }
            None => Url::parse(destination),
        };
        let url = url.map_err(|error| {
            TargetError::Url(format!("not a URL: {error}; write a whole URL, or configure a base URL"))
        })?;
        self.check_url(&url, guard)?;
        Ok(url)
    }

    fn check_url(&self, url: &Url, guard: &AddressGuard) -> Result<(), TargetError> {
        match url.scheme() {
            "https" => {}
            "http" if self.allows_http => {}
            "http" => return Err(TargetError::PlainHttp),
            other => return Err(TargetError::Url(format!("the scheme {other} is not supported: use https"))),
        }
        Ok(guard.check_url(url)?)
    }
}

/// Whether a segment is `.` or `..`, encoded or not; URL parsers resolve these.
fn is_dots(segment: &str) -> bool {
    matches!(segment.to_ascii_lowercase().replace("%2e", ".").as_str(), "." | "..")
}

/// Scheme, host and port: the part of a URL that may be logged. Path, query and user may be secrets.
pub(super) fn origin(url: &Url) -> String {
    url.origin().ascii_serialization()
}

/// A destination without user, password and query.
pub(super) fn redacted(destination: &str) -> String {
    let Ok(mut url) = Url::parse(destination) else { return destination.to_owned() };
    // These calls fail only if there is nothing to remove.
    url.set_username("").ok();
    url.set_password(None).ok();
    url.set_query(None);
    url.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(targets: &Targets, destination: &str) -> String {
        match targets.url(destination, &AddressGuard::default()) {
            Ok(url) => url.into(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn url_without_base_keeps_whole_destination() {
        let any = Targets::default();
        assert_eq!(read(&any, "https://shop.example/in?a=b"), "https://shop.example/in?a=b");
        assert_eq!(read(&any, "https://shop.example/a b/ä"), "https://shop.example/a%20b/%C3%A4");
        assert!(read(&any, "orders").starts_with("not a URL: relative URL without a base"));
        assert_eq!(read(&any, "ftp://shop.example/"), "the scheme ftp is not supported: use https");
        assert!(read(&any, "http://shop.example/").starts_with("http is not encrypted"));
        assert!(read(&any, "https://10.0.0.1/").starts_with("10.0.0.1 is at 10.0.0.1, which is not public"));
        let plain = Targets { allows_http: true, ..Targets::default() };
        assert_eq!(read(&plain, "http://shop.example/"), "http://shop.example/");
    }

    #[test]
    fn url_with_base_stays_below_it() {
        for base in ["https://shop.example/in", "https://shop.example/in/"] {
            let below = Targets::below(base).unwrap();
            assert_eq!(read(&below, "orders/17?x=y"), "https://shop.example/in/orders/17?x=y");
            assert_eq!(read(&below, "/orders"), "https://shop.example/in/orders");
            assert_eq!(read(&below, "//evil.example/"), "https://shop.example/in/evil.example/");
            assert_eq!(
                read(&below, "https://evil.example/"),
                "https://shop.example/in/https://evil.example/"
            );
            assert_eq!(read(&below, "@evil.example"), "https://shop.example/in/@evil.example");
            assert_eq!(read(&below, ""), base);
        }
        assert_eq!(read(&Targets::below("https://shop.example").unwrap(), "a"), "https://shop.example/a");
    }

    #[test]
    fn url_refuses_dot_segments_fragments_and_control_characters() {
        let (any, below) = (Targets::default(), Targets::below("https://shop.example/in").unwrap());
        for odd in ["../admin", "a/./b", "a/%2e%2E/b", "a\\..\\b", "a#b", "a\nb", " a", "a\tb"] {
            assert!(below.url(odd, &AddressGuard::default()).is_err(), "{odd:?}");
            let whole = any.url(&format!("https://shop.example/{odd}"), &AddressGuard::default());
            assert!(whole.is_err() || odd == " a", "{odd:?}");
        }
        assert_eq!(
            read(&below, "a?next=../b"),
            "https://shop.example/in/a?next=../b",
            "a query is not a path"
        );
    }

    #[test]
    fn redacted_url_has_no_password() {
        assert_eq!(redacted("https://ann:hunter2@shop.example/in?token=1"), "https://shop.example/in");
        assert_eq!(redacted("orders"), "orders");
    }

    #[test]
    fn invalid_base_is_explained_without_password() {
        let error = |base: &str| Targets::below(base).map(|_| ()).unwrap_err().to_string();
        assert!(error("https://user:hunter2@[shop/").starts_with("base URL: is not a URL: "));
        assert!(!error("https://user:hunter2@[shop/").contains("hunter2"));
        assert!(error("https://shop.example/?a=b").contains("a query"));
        let plain = Targets::below("http://shop.example").unwrap().check(&AddressGuard::default());
        assert!(plain.unwrap_err().to_string().contains("allow_http"));
    }
}
