//! Checks the queues: lag, dead letters, parked keys, long pauses, repeated failures, and queues that no route delivers.

use super::{
    database::{DatabaseCheck, shell_word},
    failures,
};
use crate::{config::RouteSection, format, open_database::OpenDatabase};
use postrider::{
    Error, Finding, Message, Pausable, PauseRecord, QueueName, State,
    inspect::{Counts, Inspect, ListRequest, Selection, StateFilter},
};
use std::time::{Duration, SystemTime};

/// How many messages in a state are checked, and how many keys are listed.
const SAMPLE: usize = 100;
const KEYS: usize = 10;
/// A message whose lease expired this often is reported; a worker may crash now and then.
const EXPIRED_LEASES: u32 = 5;

/// An operator may have forgotten a pause that is longer than this.
const LONG_PAUSE: Duration = Duration::from_secs(24 * 60 * 60);

type Samples = Vec<(QueueName, Vec<Message>)>;

pub(super) async fn check_all(
    check: &DatabaseCheck<'_>,
    opened: &OpenDatabase,
    max_lag: Duration,
) -> Result<(Vec<Finding>, Samples), Error> {
    let inspect = &*opened.backend();
    let paused = opened.backend().paused().await?;
    let now = inspect.clock().await?;
    let mut findings: Vec<_> = paused.iter().filter_map(|paused| long_pause(check, paused, now)).collect();
    let mut samples = Vec::new();
    for (queue, counts) in inspect.counts().await? {
        // A name may contain characters that are special to a shell.
        let name = shell_word(queue.as_str());
        // A paused queue is expected to lag.
        let is_paused = paused.iter().any(|paused| paused.what == Pausable::Queue(queue.clone()));
        if let Some(lag) = inspect.lag(&queue).await?.filter(|lag| *lag > max_lag && !is_paused) {
            findings.push(lag_finding(check, &queue, lag));
        }
        findings.extend(unrouted(check, &queue, &counts));
        if counts.dead.at_least > 0 {
            findings.extend(dead_letters(check, inspect, &queue).await?);
        }
        findings.extend(parked_keys(check, inspect, &queue).await?);
        let mut entries = Vec::new();
        for state in [StateFilter::Ready, StateFilter::Scheduled] {
            let request = ListRequest::new(queue.clone(), state).with_limit(SAMPLE);
            match inspect.list(&request).await {
                Ok(page) => entries.extend(page.entries),
                // The schema check reports this.
                Err(Error::SchemaMismatch(_)) => {}
                Err(error) => return Err(error),
            }
        }
        findings.extend(failures::findings(check, &queue, &entries));
        for entry in &entries {
            let in_flight = u32::from(entry.state == State::Leased);
            let expired = entry.deliveries.saturating_sub(entry.attempts + in_flight);
            if let Some(id) = entry.message.id()
                && expired >= EXPIRED_LEASES
            {
                findings.push(
                    Finding::warning("lease_expiring", format!("message {id}"))
                        .because(format!(
                            "its lease expired {expired} times without a settlement: its handler crashes, or takes longer than the \
                             lease. Inspect: postrider messages show --queue {name} {id} {}",
                            check.option()
                        ))
                        .fixed_by(format!(
                            "postrider messages discard --queue {name} {id} --why 'its lease always expires' {}",
                            check.option()
                        )),
                );
            }
        }
        samples.push((queue, entries.into_iter().map(|entry| entry.message).collect()));
    }
    Ok((findings, samples))
}

/// A pause that an operator may have forgotten.
fn long_pause(check: &DatabaseCheck<'_>, paused: &PauseRecord, now: SystemTime) -> Option<Finding> {
    let duration = now.duration_since(paused.since).ok().filter(|duration| *duration > LONG_PAUSE)?;
    let PauseRecord { what, action, .. } = paused;
    let (kind, name) = (what.kind(), shell_word(what.name()));
    Some(
        Finding::warning("paused", what.to_string())
            .because(format!("{} paused it {} ago: {}", action.actor, format::span(duration), action.why))
            .fixed_by(format!(
                "postrider resume --{kind} {name} --why 'the pause is over' {}",
                check.option()
            )),
    )
}

/// Dead letters and abandoned follow-ups. Requeueing a follow-up has to be recorded in the ledger.
async fn dead_letters(
    check: &DatabaseCheck<'_>,
    inspect: &dyn Inspect,
    queue: &QueueName,
) -> Result<Vec<Finding>, Error> {
    let selected = inspect.summarize(&Selection::new(queue.clone(), StateFilter::Dead)).await?;
    let (name, option) = (shell_word(queue.as_str()), check.option());
    let subject = format!("queue {queue}");
    let requeue = format!("postrider dead requeue --queue {name} --why 'the cause is fixed' --yes {option}");
    let saga_requeue =
        format!("postrider saga requeue --queue {name} --all --why 'the cause is fixed' --yes {option}");
    let findings = [
        (selected.count, Finding::warning("dead_letters", &subject), "dead groups", requeue),
        (selected.follow_ups, Finding::warning("abandoned", &subject), "saga abandoned", saga_requeue),
    ];
    let findings =
        findings.into_iter().filter(|(count, ..)| *count > 0).map(|(count, finding, command, fix)| {
            let because = format!(
                "{count} failed permanently and need attention; inspect: postrider {command} {option}"
            );
            finding.because(because).fixed_by(fix)
        });
    Ok(findings.collect())
}

fn lag_finding(check: &DatabaseCheck<'_>, queue: &QueueName, lag: Duration) -> Finding {
    let is_routed = check.routes.iter().any(|route| *route.queue == queue.as_str());
    let fix = match check.config.filter(|_| is_routed) {
        Some(file) => format!("postrider run --config {}", shell_word(&file.display().to_string())),
        None => format!("start a worker for {queue}, or more of them"),
    };
    Finding::warning("lag", format!("queue {queue}"))
        .because(format!(
            "the oldest due message has waited for {}: no worker claims from this queue, or too few do",
            format::span(lag)
        ))
        .fixed_by(fix)
}

/// A per-destination queue, such as `orders>billing`, whose destination is no longer in the route of its queue. Without a
/// configuration the routes are unknown.
fn unrouted(check: &DatabaseCheck<'_>, queue: &QueueName, counts: &Counts) -> Option<Finding> {
    let file = check.config?;
    let (source, destination) = queue.as_str().split_once('>')?;
    let is_routed = |route: &&&RouteSection| {
        *route.queue == queue.as_str()
            || *route.queue == source && route.to.iter().any(|to| *to.destination == destination)
    };
    let states = [counts.pending, counts.leased, counts.scheduled];
    let messages: u64 = states.iter().map(|state| state.at_least).sum();
    if messages == 0 || check.routes.iter().any(|route| is_routed(&route)) {
        return None;
    }
    let more = if states.iter().any(|state| state.capped) { "more than " } else { "" };
    Some(
        Finding::warning("unrouted_queue", format!("queue {queue}"))
            .because(format!(
                "{more}{messages} messages of queue {source} that destination {destination} has not accepted yet, and no route delivers \
                 them: the destination was removed from the route, or renamed. To drop them instead: postrider messages discard --queue \
                 {} ID {}",
                shell_word(queue.as_str()),
                check.option()
            ))
            .fixed_by(format!(
                "add destination {destination} to the route of queue {source} in {} until queue {queue} is empty",
                file.display()
            )),
    )
}

/// Parked keys stay blocked until an operator releases them; keys that wait for a retry do not.
async fn parked_keys(
    check: &DatabaseCheck<'_>,
    inspect: &dyn Inspect,
    queue: &QueueName,
) -> Result<Option<Finding>, Error> {
    let keys = inspect.blocked_keys(queue, KEYS).await?;
    let parked: Vec<_> = keys.iter().filter(|key| key.due_at.is_none()).collect();
    let Some(first) = parked.first() else { return Ok(None) };
    let more = match parked.len() {
        1 => String::new(),
        number => format!(" and {} more", number - 1),
    };
    let why = first.error.as_deref().unwrap_or("its first message failed permanently");
    let releases = parked.iter().map(|key| {
        format!(
            "postrider keys release --queue {} {} --why 'the cause is fixed' {}",
            shell_word(queue.as_str()),
            shell_word(key.key.as_str()),
            check.option()
        )
    });
    Ok(Some(
        Finding::warning("parked_keys", format!("queue {queue}"))
            .because(format!(
                "key {}{more} is parked and needs attention; later messages of the key wait: {why}",
                first.key
            ))
            .fixed_by(releases.collect::<Vec<_>>().join("\n")),
    ))
}
