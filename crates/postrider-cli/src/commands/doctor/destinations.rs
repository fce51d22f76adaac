//! Checks the destinations through their transports.
//!
//! The placeholders of an address are filled from pending messages of the queue. Without pending messages, only the fixed part of the
//! address is checked.

use super::{locate, report::LocatedFinding};
use crate::{
    config::{Config, Kind, Place},
    transport,
};
use postrider::{Finding, Message, PublishError, QueueName, Template};
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    path::Path,
    time::Duration,
};
use tokio::time::timeout;

/// A destination that does not reply within this time is unreachable.
const CHECK_TIMEOUT: Duration = Duration::from_secs(15);
/// How many addresses of one template are checked.
const MAX_ADDRESSES: usize = 20;

/// The addresses that routes send to, by destination.
pub(super) struct Addresses<'c> {
    config: &'c Config,
    known: BTreeMap<String, BTreeSet<String>>,
    /// Templates without a known address.
    unknown: BTreeMap<String, BTreeSet<String>>,
}

impl<'c> Addresses<'c> {
    pub(super) fn of(config: &'c Config) -> Self {
        let mut addresses = Self { config, known: BTreeMap::new(), unknown: BTreeMap::new() };
        for route in &config.routes {
            for to in &route.to {
                let Ok(template) = Template::parse(to.address.as_str()) else { continue };
                let kind = config.destinations.get(&to.destination.value).map(|section| section.kind.value);
                let (set, address) = match (template.fixed(), exchange(kind, &to.address)) {
                    (Some(fixed), _) => (&mut addresses.known, fixed.to_owned()),
                    (None, Some(exchange)) => (&mut addresses.known, exchange),
                    // Every address of these is valid.
                    (None, None) if matches!(kind, Some(Kind::Stdout | Kind::Webhook) | None) => continue,
                    (None, None) => (&mut addresses.unknown, to.address.value.clone()),
                };
                set.entry(to.destination.value.clone()).or_default().insert(address);
            }
        }
        addresses
    }

    /// Renders the templates with messages of a queue.
    pub(super) fn render_from(&mut self, database: &str, queue: &QueueName, messages: &[Message]) {
        let routes = self.config.routes.iter();
        for route in routes.filter(|route| *route.database == database && *route.queue == queue.as_str()) {
            for to in &route.to {
                let Ok(template) = Template::parse(to.address.as_str()) else { continue };
                let rendered = messages.iter().filter_map(|message| template.render(message).ok());
                let rendered: BTreeSet<_> = rendered.take(MAX_ADDRESSES).collect();
                if let Some(unknown) = self.unknown.get_mut(&to.destination.value)
                    && !rendered.is_empty()
                {
                    unknown.remove(&to.address.value);
                }
                self.known.entry(to.destination.value.clone()).or_default().extend(rendered);
            }
        }
    }
}

/// The exchange of an address whose placeholders are all in the routing key.
fn exchange(kind: Option<Kind>, address: &str) -> Option<String> {
    let (exchange, _) = address.split_once('/')?;
    (kind == Some(Kind::RabbitMq) && !exchange.contains(['{', '}'])).then(|| format!("{exchange}/any"))
}

pub(super) async fn check_all(
    config: &Config,
    file: &Path,
    addresses: &Addresses<'_>,
) -> Vec<LocatedFinding> {
    let mut located = Vec::new();
    for (name, section) in &config.destinations {
        let target = format!("destination {name}");
        let none = BTreeSet::new();
        let known: Vec<_> = addresses.known.get(name).unwrap_or(&none).iter().map(String::as_str).collect();
        let mut findings = check(file, name, section, &known).await;
        findings.extend(addresses.unknown.get(name).unwrap_or(&none).iter().map(|template| {
            Finding::note("unchecked", format!("address {template}"))
                .because("not checked: no pending message supplies values for the placeholders")
                .fixed_by("run postrider doctor again when the queue has pending messages")
        }));
        findings.sort_by_key(|finding| Reverse(finding.severity));
        located.extend(locate(&target, findings));
    }
    located
}

async fn check(file: &Path, name: &str, section: &Place, addresses: &[&str]) -> Vec<Finding> {
    let transport = match transport::build(file, name, section) {
        Ok(transport) => transport,
        Err(problem) => {
            let fix = format!("correct [destinations.{name}] in {}:{}", file.display(), section.line.0);
            return vec![
                Finding::problem("unreachable", format!("destination {name}"))
                    .because(problem.one_line())
                    .fixed_by(fix),
            ];
        }
    };
    let result = timeout(CHECK_TIMEOUT, transport.check(addresses)).await;
    transport.close().await;
    let error = match result {
        Ok(Ok(findings)) => return findings,
        Ok(Err(error)) => error,
        Err(_) => PublishError::unavailable(format!("no reply within {CHECK_TIMEOUT:?}")),
    };
    let url = section.secret("url").map(ToString::to_string).unwrap_or_default();
    let fix =
        format!("start the server at {url}, or correct the url in {}:{}", file.display(), section.line.0);
    vec![
        Finding::problem("unreachable", format!("destination {name}"))
            .because(error.to_string())
            .fixed_by(fix),
    ]
}
