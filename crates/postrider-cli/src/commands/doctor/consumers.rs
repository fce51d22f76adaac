//! Where the daemon receives from: whether it comes again when it has to, and whether the inbox would still know it then.

use super::{at, report::Found};
use crate::{
    config::{Config, ConsumerSection, Kind},
    source::{self, Received},
    words,
};
use postrider::{
    Finding, Source, SourceError,
    consumer::{RESENT_WITHIN, marks_needed},
};
use std::{path::Path, time::Duration};
use tokio::time::timeout;

/// A broker that says nothing for so long is away.
const PATIENCE: Duration = Duration::from_secs(5);

pub(super) async fn examine(config: &Config, file: &Path) -> Vec<Found> {
    let mut found = Vec::new();
    for section in &config.consumers {
        let subject = format!("consumer {}", *section.name);
        found.extend(at(&subject, check(file, section, &subject).await));
    }
    found
}

async fn check(file: &Path, section: &ConsumerSection, subject: &str) -> Vec<Finding> {
    let place = format!("{}:{}", file.display(), section.line.0);
    let unreachable = |why: String| {
        let fix = format!("start its broker, or correct the source in {place}");
        vec![Finding::problem("unreachable", subject).because(why).fixed_by(fix)]
    };
    let source = match source::build(file, section) {
        Ok(Received { source, .. }) => source,
        Err(problem) => return unreachable(problem.in_a_line()),
    };
    // Requests come to the daemon, and this is another process.
    let is_webhook = section.source.kind.value == Kind::Webhook;
    let asked = timeout(PATIENCE, async {
        let mut findings = if is_webhook { Vec::new() } else { source.check().await? };
        findings.extend(marks(&*source, section, subject, &place).await?);
        Ok::<_, SourceError>(findings)
    });
    let asked = asked.await;
    source.close().await;
    match asked {
        Ok(Ok(findings)) => findings,
        Ok(Err(error)) => unreachable(error.to_string()),
        Err(_) => unreachable(format!("no answer within {PATIENCE:?}")),
    }
}

/// A message whose mark is gone is new when it comes again.
async fn marks(
    source: &dyn Source,
    section: &ConsumerSection,
    subject: &str,
    place: &str,
) -> Result<Option<Finding>, SourceError> {
    let (within, because) = match &section.redelivered_within {
        Some(within) => (Some(within.value), "redelivered_within says so".to_owned()),
        None => {
            let redelivers = source.redelivers().await?;
            (redelivers.within, redelivers.because)
        }
    };
    Ok(match (within, &section.keep_marks_for) {
        (None, _) => Some(
            Finding::warning("redelivered_for_ever", subject)
                .because(format!(
                    "a message can come again for ever ({because}), and is new when its mark is gone by then"
                ))
                .fixed_by(format!("write redelivered_within = \"14d\" below the [[consumers]] in {place}")),
        ),
        (Some(within), Some(keeps)) if keeps.value < marks_needed(within, RESENT_WITHIN) => {
            let needed = marks_needed(within, RESENT_WITHIN).as_secs().div_ceil(24 * 60 * 60);
            Some(
                Finding::problem("marks_too_short", subject)
                    .because(format!(
                        "marks are kept for {}, and a message can come again for {} ({because}), after its sender may have sent it \
                         for {}: the consumer does not start",
                        words::span(keeps.value),
                        words::span(within),
                        words::span(RESENT_WITHIN)
                    ))
                    .fixed_by(format!(
                        "write keep_marks_for = \"{needed}d\" below the [[consumers]] in {place}"
                    )),
            )
        }
        _ => None,
    })
}
