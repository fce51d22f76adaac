//! The destinations, as their transports see them.
//!
//! Where an address has holes, it is checked with what waits in the queue. Where nothing waits, only what does not depend on the
//! message is.

use super::{at, report::Found};
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

/// A destination that says nothing for so long is away.
const PATIENCE: Duration = Duration::from_secs(15);
/// As many addresses of one template as are worth asking for.
const MOST: usize = 20;

/// What is sent to each destination, by its name.
pub(super) struct Addresses<'c> {
    config: &'c Config,
    known: BTreeMap<String, BTreeSet<String>>,
    /// Templates of which no address is known.
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
                    // Whatever they are given leads somewhere.
                    (None, None) if matches!(kind, Some(Kind::Stdout | Kind::Webhook) | None) => continue,
                    (None, None) => (&mut addresses.unknown, to.address.value.clone()),
                };
                set.entry(to.destination.value.clone()).or_default().insert(address);
            }
        }
        addresses
    }

    /// Fills the holes with what waits in a queue.
    pub(super) fn learn(&mut self, database: &str, queue: &QueueName, messages: &[Message]) {
        let routes = self.config.routes.iter();
        for route in routes.filter(|route| *route.database == database && *route.queue == queue.as_str()) {
            for to in &route.to {
                let Ok(template) = Template::parse(to.address.as_str()) else { continue };
                let rendered = messages.iter().filter_map(|message| template.render(message).ok());
                let rendered: BTreeSet<_> = rendered.take(MOST).collect();
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

/// The exchange of an address whose holes are in the routing key alone.
fn exchange(kind: Option<Kind>, address: &str) -> Option<String> {
    let (exchange, _) = address.split_once('/')?;
    (kind == Some(Kind::RabbitMq) && !exchange.contains(['{', '}'])).then(|| format!("{exchange}/any"))
}

pub(super) async fn examine(config: &Config, file: &Path, addresses: &Addresses<'_>) -> Vec<Found> {
    let mut found = Vec::new();
    for (name, section) in &config.destinations {
        let place = format!("destination {name}");
        let none = BTreeSet::new();
        let known: Vec<_> = addresses.known.get(name).unwrap_or(&none).iter().map(String::as_str).collect();
        let mut findings = check(file, name, section, &known).await;
        findings.extend(addresses.unknown.get(name).unwrap_or(&none).iter().map(|template| {
            Finding::note("unchecked", format!("address {template}"))
                .because("nothing waits that says what stands in its holes: whether it leads anywhere is not known")
                .fixed_by("look again when something waits in the queue")
        }));
        findings.sort_by_key(|finding| Reverse(finding.severity));
        found.extend(at(&place, findings));
    }
    found
}

async fn check(file: &Path, name: &str, section: &Place, addresses: &[&str]) -> Vec<Finding> {
    let transport = match transport::build(file, name, section) {
        Ok(transport) => transport,
        Err(problem) => {
            let fix = format!("correct [destinations.{name}] in {}:{}", file.display(), section.line.0);
            return vec![
                Finding::problem("unreachable", format!("destination {name}"))
                    .because(problem.in_a_line())
                    .fixed_by(fix),
            ];
        }
    };
    let checked = timeout(PATIENCE, transport.check(addresses)).await;
    transport.close().await;
    let error = match checked {
        Ok(Ok(findings)) => return findings,
        Ok(Err(error)) => error,
        Err(_) => PublishError::down(format!("no answer within {PATIENCE:?}")),
    };
    let url = section.secret("url").map(ToString::to_string).unwrap_or_default();
    let fix = format!(
        "start what is to listen at {url}, or correct the url in {}:{}",
        file.display(),
        section.line.0
    );
    vec![
        Finding::problem("unreachable", format!("destination {name}"))
            .because(error.to_string())
            .fixed_by(fix),
    ]
}
