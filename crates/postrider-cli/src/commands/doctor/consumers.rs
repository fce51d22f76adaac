//! The sources of the consumers: whether they redeliver, and whether the inbox still has the deduplication record by then.

use super::{locate, report::LocatedFinding};
use crate::{
    config::{Config, ConsumerSection, Kind},
    format,
    source::{self, Received},
};
use postrider::{
    Finding, Source, SourceError,
    consumer::{RESEND_WINDOW, deduplication_window},
};
use std::{path::Path, time::Duration};
use tokio::time::timeout;

/// A broker that does not reply within this time is unreachable.
const CHECK_TIMEOUT: Duration = Duration::from_secs(5);

pub(super) async fn check_all(config: &Config, file: &Path) -> Vec<LocatedFinding> {
    let mut findings = Vec::new();
    for section in &config.consumers {
        let subject = format!("consumer {}", *section.name);
        findings.extend(locate(&subject, check(file, section, &subject).await));
    }
    findings
}

async fn check(file: &Path, section: &ConsumerSection, subject: &str) -> Vec<Finding> {
    let location = format!("{}:{}", file.display(), section.line.0);
    let unreachable = |why: String| {
        let fix = format!("start the broker, or correct the source in {location}");
        vec![Finding::problem("unreachable", subject).because(why).fixed_by(fix)]
    };
    let source = match source::build(file, section) {
        Ok(Received { source, .. }) => source,
        Err(problem) => return unreachable(problem.one_line()),
    };
    // The daemon receives the requests, and this is another process.
    let is_webhook = section.source.kind.value == Kind::Webhook;
    let result = timeout(CHECK_TIMEOUT, async {
        let mut findings = if is_webhook { Vec::new() } else { source.check().await? };
        findings.extend(deduplication(&*source, section, subject, &location).await?);
        Ok::<_, SourceError>(findings)
    });
    let result = result.await;
    source.close().await;
    match result {
        Ok(Ok(findings)) => findings,
        Ok(Err(error)) => unreachable(error.to_string()),
        Err(_) => unreachable(format!("no reply within {CHECK_TIMEOUT:?}")),
    }
}

/// A redelivered message is handled again once its deduplication record was deleted.
async fn deduplication(
    source: &dyn Source,
    section: &ConsumerSection,
    subject: &str,
    location: &str,
) -> Result<Option<Finding>, SourceError> {
    let (within, because) = match section.duration("redelivery_window") {
        Some(within) => (Some(within), "redelivery_window".to_owned()),
        None => {
            let redelivers = source.redelivery_window().await?;
            (redelivers.within, redelivers.reason)
        }
    };
    Ok(match (within, section.duration("keep_deduplication_records_for")) {
        (None, _) => Some(
            Finding::warning("unbounded_redelivery", subject)
                .because(format!(
                    "the broker may redeliver a message without limit ({because}); a message is handled again when its deduplication record was deleted"
                ))
                .fixed_by(format!("write redelivery_window = \"14d\" below the [[consumers]] in {location}")),
        ),
        (Some(within), Some(keeps)) if keeps < deduplication_window(within, RESEND_WINDOW) => {
            let needed = deduplication_window(within, RESEND_WINDOW).as_secs().div_ceil(24 * 60 * 60);
            Some(
                Finding::problem("deduplication_window_too_short", subject)
                    .because(format!(
                        "deduplication records are kept for {}, but a message can be redelivered for {} ({because}), after its sender may have \
                         retried it for {}: the consumer does not start",
                        format::span(keeps),
                        format::span(within),
                        format::span(RESEND_WINDOW)
                    ))
                    .fixed_by(format!(
                        "write keep_deduplication_records_for = \"{needed}d\" below the [[consumers]] in {location}"
                    )),
            )
        }
        _ => None,
    })
}
