//! What can be known of a receiver without sending it a message.
//!
//! A request of the method OPTIONS, which changes nothing, goes to each URL. It tells whether somebody is there and proves who
//! they are. It does not tell what a POST would be answered: most receivers know no OPTIONS and say 404 or 405. So only what
//! cannot depend on the method is reported.

use super::{
    Inner,
    target::{Wrong, shown},
    trouble::Trouble,
};
use postrider_core::Finding;
use reqwest::{Client, Method, StatusCode, Url};

impl Inner {
    pub(super) async fn findings(&self, client: &Client, destinations: &[&str]) -> Vec<Finding> {
        let mut findings = Vec::new();
        for destination in destinations {
            let subject = shown(destination);
            match self.options.targets.url(destination, &self.guard) {
                Err(wrong) => findings.push(unsendable(&wrong, subject)),
                Ok(url) => {
                    findings.extend(self.plain(&url, &subject));
                    findings.extend(self.probed(client, url, subject).await);
                }
            }
        }
        if self.options.secrets.is_empty() && !destinations.is_empty() {
            let unsigned = Finding::note("unsigned", "signatures")
                .because("messages are not signed: receivers cannot tell who sent them")
                .fixed_by("share a secret with the receivers, and give it with `HttpOptions::with_secret`");
            findings.push(unsigned);
        }
        findings
    }

    fn plain(&self, url: &Url, subject: &str) -> Option<Finding> {
        let plain = Finding::warning("plain_http", subject)
            .because("http is not encrypted: whoever is on the way can read messages, and answer in the receiver's name")
            .fixed_by("use https");
        (url.scheme() == "http").then_some(plain)
    }

    async fn probed(&self, client: &Client, url: Url, subject: String) -> Option<Finding> {
        if self.hosts.is_gone(&url) {
            return Some(gone(subject));
        }
        let probe = client.request(Method::OPTIONS, url).timeout(self.options.timeout).send().await;
        match probe.map_err(Trouble::from) {
            Ok(answer) if answer.status() == StatusCode::GONE => Some(gone(subject)),
            Ok(answer) if answer.status().is_redirection() => Some(
                Finding::warning("redirects", subject)
                    .because(format!(
                        "it answers OPTIONS with {}, and a message probably as well; redirects are not followed",
                        answer.status()
                    ))
                    .fixed_by("use the URL that it leads to"),
            ),
            Ok(_) => None,
            Err(trouble) => missing(trouble, subject),
        }
    }
}

fn unsendable(wrong: &Wrong, subject: String) -> Finding {
    let reason = wrong.to_string();
    match wrong {
        Wrong::Url(_) => Finding::problem("bad_url", subject).because(reason).fixed_by("correct the URL"),
        Wrong::PlainHttp => Finding::problem("plain_http", subject)
            .because(reason)
            .fixed_by("use https; or `HttpOptions::allow_http` if everybody on the way may read it"),
        Wrong::Private(_) => private(reason, subject),
    }
}

fn private(reason: String, subject: String) -> Finding {
    Finding::problem("private_address", subject)
        .because(reason)
        .fixed_by("`HttpOptions::allow_host` or `allow_network`, if messages are meant to go there")
}

fn gone(subject: String) -> Finding {
    Finding::problem("gone", subject)
        .because("it answered 410: the receiver wants no more messages there, and gets none")
        .fixed_by("send elsewhere or nothing; make the transport anew if it is back")
}

fn missing(trouble: Trouble, subject: String) -> Option<Finding> {
    let (code, reason, fix) = match trouble {
        Trouble::Private(reason) => return Some(private(reason, subject)),
        Trouble::Name(reason) => ("unresolvable", reason, "correct the host's name, or its entry in the DNS"),
        Trouble::Certificate(reason) => {
            ("bad_certificate", reason, "renew the certificate, or give its issuer with `HttpOptions::trust`")
        }
        Trouble::Connection(reason) => {
            ("unreachable", reason, "start the receiver, or open the way to its port")
        }
        // Somebody is there. Whether they would answer a message is not known.
        Trouble::Silence(_) => return None,
    };
    Some(Finding::problem(code, subject).because(reason).fixed_by(fix))
}
