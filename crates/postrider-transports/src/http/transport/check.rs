//! Checks receivers without sending them a message.
//!
//! An OPTIONS request, which changes nothing, goes to each URL. It shows whether the receiver is reachable and its certificate valid. It
//! does not show how the receiver responds to a POST: most receivers do not support OPTIONS and respond with 404 or 405. So only results
//! that do not depend on the method are reported.

use super::{
    Inner,
    error::RequestError,
    target::{TargetError, redacted},
};
use postrider_core::Finding;
use reqwest::{Client, Method, StatusCode, Url};

impl Inner {
    pub(super) async fn findings(&self, client: &Client, destinations: &[&str]) -> Vec<Finding> {
        let mut findings = Vec::new();
        for destination in destinations {
            let subject = redacted(destination);
            match self.options.targets.url(destination, &self.guard) {
                Err(error) => findings.push(bad_target(&error, subject)),
                Ok(url) => {
                    findings.extend(self.plain_http(&url, &subject));
                    findings.extend(self.probe(client, url, subject).await);
                }
            }
        }
        if self.options.secrets.is_empty() && !destinations.is_empty() {
            let unsigned = Finding::note("unsigned", "signatures")
                .because("messages are not signed: receivers cannot verify who sent them")
                .fixed_by("share a secret with the receivers, and set it with `HttpOptions::with_secret`");
            findings.push(unsigned);
        }
        findings
    }

    fn plain_http(&self, url: &Url, subject: &str) -> Option<Finding> {
        let plain_http = Finding::warning("plain_http", subject)
            .because("http is not encrypted: everybody on the network path can read messages, and respond in the receiver's name")
            .fixed_by("use https");
        (url.scheme() == "http").then_some(plain_http)
    }

    async fn probe(&self, client: &Client, url: Url, subject: String) -> Option<Finding> {
        if self.hosts.is_gone(&url) {
            return Some(gone(subject));
        }
        let response = client.request(Method::OPTIONS, url).timeout(self.options.timeout()).send().await;
        match response.map_err(RequestError::from) {
            Ok(response) if response.status() == StatusCode::GONE => Some(gone(subject)),
            Ok(response) if response.status().is_redirection() => Some(
                Finding::warning("redirects", subject)
                    .because(format!(
                        "the receiver responds to OPTIONS with {}, and probably to messages as well; redirects are not followed",
                        response.status()
                    ))
                    .fixed_by("configure the final URL"),
            ),
            Ok(_) => None,
            Err(error) => unreachable(error, subject),
        }
    }
}

fn bad_target(error: &TargetError, subject: String) -> Finding {
    let reason = error.to_string();
    match error {
        TargetError::Url(_) => {
            Finding::problem("bad_url", subject).because(reason).fixed_by("correct the URL")
        }
        TargetError::PlainHttp => Finding::problem("plain_http", subject).because(reason).fixed_by(
            "use https; or `HttpOptions::allow_http` if everybody on the network path may read the messages",
        ),
        TargetError::Private(_) => private_address(reason, subject),
    }
}

fn private_address(reason: String, subject: String) -> Finding {
    Finding::problem("private_address", subject)
        .because(reason)
        .fixed_by("`HttpOptions::allow_host` or `allow_network`, if messages are meant to go there")
}

fn gone(subject: String) -> Finding {
    Finding::problem("gone", subject)
        .because("the receiver responded with 410: it wants no more messages at this URL, and none are sent")
        .fixed_by("change or remove the destination; if the URL is back, create a new transport (restart the process)")
}

fn unreachable(error: RequestError, subject: String) -> Option<Finding> {
    let (code, reason, fix) = match error {
        RequestError::PrivateAddress(reason) => return Some(private_address(reason, subject)),
        RequestError::Dns(reason) => ("unresolvable", reason, "correct the host name, or its DNS record"),
        RequestError::Certificate(reason) => (
            "bad_certificate",
            reason,
            "renew the certificate, or set the CA bundle of its issuer with `ClientOptions::with_trust`",
        ),
        RequestError::Connect(reason) => {
            ("unreachable", reason, "start the receiver, or allow connections to its port")
        }
        // The receiver is reachable. Whether it responds to a message is unknown.
        RequestError::NoResponse(_) => return None,
    };
    Some(Finding::problem(code, subject).because(reason).fixed_by(fix))
}
