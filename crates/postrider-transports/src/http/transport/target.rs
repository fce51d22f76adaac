//! From a destination's name to the URL that a message is sent to.

use super::guard::{Forbidden, Guard};
use postrider_core::Invalid;
use reqwest::Url;

/// Why nothing can be sent to a URL.
#[derive(Debug, thiserror::Error)]
pub(super) enum Wrong {
    #[error("{0}")]
    Url(String),
    #[error("http is not encrypted: use https, or open it with `allow_http`")]
    PlainHttp,
    #[error(transparent)]
    Private(#[from] Forbidden),
}

/// Which URLs are sent to.
#[derive(Debug, Clone, Default)]
pub(super) struct Targets {
    /// Everything goes below this, if it is set.
    base: Option<Url>,
    pub(super) allows_http: bool,
}

impl Targets {
    pub(super) fn below(base: &str) -> Result<Self, Invalid> {
        let wrong = |rule: String| Err(Invalid::rule("base URL", rule));
        // What was given is not repeated: it may hold a password.
        let url = match Url::parse(base) {
            Ok(url) => url,
            Err(error) => return wrong(format!("is none: {error}; write it like https://example.com/hooks")),
        };
        if url.query().is_some() || url.fragment().is_some() {
            return wrong(
                "ends with a query or a fragment; destinations could not be put after it".to_owned(),
            );
        }
        Ok(Self { base: Some(url), allows_http: false })
    }

    /// Whether all of them are at one host.
    pub(super) fn are_below_one(&self) -> bool {
        self.base.is_some()
    }

    /// Whether the settings fit each other.
    pub(super) fn check(&self, guard: &Guard) -> Result<(), Invalid> {
        let Some(base) = &self.base else { return Ok(()) };
        self.reachable(base, guard).map_err(|wrong| Invalid::rule("base URL", wrong.to_string()))
    }

    /// The URL of a destination.
    pub(super) fn url(&self, destination: &str, guard: &Guard) -> Result<Url, Wrong> {
        let wrong = |what: &str| Err(Wrong::Url(what.to_owned()));
        if destination.contains(|c: char| c.is_control()) || destination.trim() != destination {
            return wrong("the URL has control characters or white space around it");
        }
        if destination.contains('#') {
            return wrong("the URL has a fragment, which is never sent: write # as %23");
        }
        let path = destination.split('?').next().unwrap_or_default();
        // A key or tenant from a message must not lead out of the place that the template names.
        if path.split(['/', '\\']).any(is_dots) {
            return wrong("the URL has a segment of dots, which would lead elsewhere");
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
            Wrong::Url(format!(
                "no URL: {error}; give a whole one, or a base URL that destinations are put after"
            ))
        })?;
        self.reachable(&url, guard)?;
        Ok(url)
    }

    fn reachable(&self, url: &Url, guard: &Guard) -> Result<(), Wrong> {
        match url.scheme() {
            "https" => {}
            "http" if self.allows_http => {}
            "http" => return Err(Wrong::PlainHttp),
            other => return Err(Wrong::Url(format!("{other} is not spoken here: use https"))),
        }
        Ok(guard.pass(url)?)
    }
}

/// `.` and `..`, encoded or not, which are taken out when a URL is read.
fn is_dots(segment: &str) -> bool {
    matches!(segment.to_ascii_lowercase().replace("%2e", ".").as_str(), "." | "..")
}

/// Scheme, host and port: what may be told of a URL. Its path, query and user may be secrets.
pub(super) fn origin(url: &Url) -> String {
    url.origin().ascii_serialization()
}

/// A destination without user, password and query.
pub(super) fn shown(destination: &str) -> String {
    let Ok(mut url) = Url::parse(destination) else { return destination.to_owned() };
    // They fail only where there is nothing to take away.
    url.set_username("").ok();
    url.set_password(None).ok();
    url.set_query(None);
    url.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(targets: &Targets, destination: &str) -> String {
        match targets.url(destination, &Guard::default()) {
            Ok(url) => url.into(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn a_whole_url_is_taken_as_it_is() {
        let any = Targets::default();
        assert_eq!(read(&any, "https://shop.example/in?a=b"), "https://shop.example/in?a=b");
        assert_eq!(read(&any, "https://shop.example/a b/ä"), "https://shop.example/a%20b/%C3%A4");
        assert!(read(&any, "orders").starts_with("no URL: relative URL without a base"));
        assert_eq!(read(&any, "ftp://shop.example/"), "ftp is not spoken here: use https");
        assert!(read(&any, "http://shop.example/").starts_with("http is not encrypted"));
        assert!(read(&any, "https://10.0.0.1/").starts_with("10.0.0.1 is at 10.0.0.1, which is not public"));
        let plain = Targets { allows_http: true, ..Targets::default() };
        assert_eq!(read(&plain, "http://shop.example/"), "http://shop.example/");
    }

    #[test]
    fn a_destination_is_put_after_the_base_and_stays_there() {
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
    fn nothing_of_a_message_leads_elsewhere_or_gets_lost() {
        let (any, below) = (Targets::default(), Targets::below("https://shop.example/in").unwrap());
        for odd in ["../admin", "a/./b", "a/%2e%2E/b", "a\\..\\b", "a#b", "a\nb", " a", "a\tb"] {
            assert!(below.url(odd, &Guard::default()).is_err(), "{odd:?}");
            let whole = any.url(&format!("https://shop.example/{odd}"), &Guard::default());
            assert!(whole.is_err() || odd == " a", "{odd:?}");
        }
        assert_eq!(
            read(&below, "a?next=../b"),
            "https://shop.example/in/a?next=../b",
            "in a query it is no path"
        );
    }

    #[test]
    fn what_is_shown_holds_no_password() {
        assert_eq!(shown("https://ann:hunter2@shop.example/in?token=1"), "https://shop.example/in");
        assert_eq!(shown("orders"), "orders");
    }

    #[test]
    fn a_wrong_base_says_why_and_shows_no_password() {
        let error = |base: &str| Targets::below(base).map(|_| ()).unwrap_err().to_string();
        assert!(error("https://user:hunter2@[shop/").starts_with("base URL: is none: "));
        assert!(!error("https://user:hunter2@[shop/").contains("hunter2"));
        assert!(error("https://shop.example/?a=b").contains("a query"));
        let plain = Targets::below("http://shop.example").unwrap().check(&Guard::default());
        assert!(plain.unwrap_err().to_string().contains("allow_http"));
    }
}
