//! How the queues are: what waits for too long, and what waits for a hand.

use super::{
    database::{Patient, word},
    failing,
};
use crate::{opened::Opened, words};
use postrider::{
    Error, Finding, Message, Pausable, Paused, QueueName, State,
    inspect::{Inspect, ListRequest, Room, Selection},
};
use std::time::{Duration, SystemTime};

/// How many messages of a room are looked at, and how many keys are told.
const SAMPLE: usize = 100;
const KEYS: usize = 10;
/// A worker may die now and then.
const LAPSES: u32 = 5;

/// Who lets work wait for longer has perhaps forgotten it.
const LONG_PAUSE: Duration = Duration::from_secs(24 * 60 * 60);

type Samples = Vec<(QueueName, Vec<Message>)>;

pub(super) async fn examine(
    patient: &Patient<'_>,
    opened: &Opened,
    max_lag: Duration,
) -> Result<(Vec<Finding>, Samples), Error> {
    let inspect = &*opened.inspect();
    let paused = opened.store().paused().await?;
    let now = inspect.clock().await?;
    let mut findings: Vec<_> = paused.iter().filter_map(|paused| forgotten(patient, paused, now)).collect();
    let mut samples = Vec::new();
    for (queue, counts) in inspect.counts().await? {
        // A name may mean something else to a shell.
        let name = word(queue.as_str());
        // What waits because somebody wants it to is not late.
        let is_paused = paused.iter().any(|paused| paused.what == Pausable::Queue(queue.clone()));
        if let Some(lag) = inspect.lag(&queue).await?.filter(|lag| *lag > max_lag && !is_paused) {
            findings.push(late(patient, &queue, lag));
        }
        if counts.dead.at_least > 0 {
            findings.extend(dead(patient, inspect, &queue).await?);
        }
        findings.extend(parked(patient, inspect, &queue).await?);
        let mut entries = Vec::new();
        for room in [Room::Ready, Room::Later] {
            let request = ListRequest::new(queue.clone(), room).with_limit(SAMPLE);
            match inspect.list(&request).await {
                Ok(page) => entries.extend(page.entries),
                // Who looks at the tables tells that.
                Err(Error::SchemaMismatch(_)) => {}
                Err(error) => return Err(error),
            }
        }
        findings.extend(failing::findings(patient, &queue, &entries));
        for entry in &entries {
            let in_hand = u32::from(entry.state == State::Leased);
            let lapses = entry.deliveries.saturating_sub(entry.attempts + in_hand);
            if let Some(id) = entry.message.id()
                && lapses >= LAPSES
            {
                findings.push(
                    Finding::warning("lapsing_lease", format!("message {id}"))
                        .because(format!(
                            "it was taken {lapses} times by somebody who never said how it ended: whoever handles it dies, or \
                             takes longer than the lease. Look with postrider messages show --queue {name} {id} {}",
                            patient.option()
                        ))
                        .fixed_by(format!(
                            "postrider messages discard --queue {name} {id} --why 'its lease lapses every time' {}",
                            patient.option()
                        )),
                );
            }
        }
        samples.push((queue, entries.into_iter().map(|entry| entry.message).collect()));
    }
    Ok((findings, samples))
}

/// Somebody let it wait, and has perhaps forgotten it.
fn forgotten(patient: &Patient<'_>, paused: &Paused, now: SystemTime) -> Option<Finding> {
    let lasts = now.duration_since(paused.since).ok().filter(|lasts| *lasts > LONG_PAUSE)?;
    let Paused { what, action, .. } = paused;
    let (kind, name) = (what.kind(), word(what.name()));
    Some(
        Finding::warning("paused", what.to_string())
            .because(format!("{} let it wait {} ago: {}", action.actor, words::span(lasts), action.why))
            .fixed_by(format!(
                "postrider resume --{kind} {name} --why 'it has waited for long' {}",
                patient.option()
            )),
    )
}

/// What failed for good. Of follow-ups the ledger has to be told when they are put back.
async fn dead(
    patient: &Patient<'_>,
    inspect: &dyn Inspect,
    queue: &QueueName,
) -> Result<Vec<Finding>, Error> {
    let selected = inspect.tally(&Selection::new(queue.clone(), Room::Dead)).await?;
    let (name, option) = (word(queue.as_str()), patient.option());
    let subject = format!("queue {queue}");
    let requeue =
        format!("postrider dead requeue --queue {name} --why 'the cause was mended' --yes {option}");
    let call =
        format!("postrider saga requeue --queue {name} --all --why 'the cause was mended' --yes {option}");
    let findings = [
        (selected.count, Finding::warning("dead_letters", &subject), "dead groups", requeue),
        (selected.follow_ups, Finding::warning("abandoned", &subject), "saga abandoned", call),
    ];
    let told = findings.into_iter().filter(|(count, ..)| *count > 0).map(|(count, finding, look, fix)| {
        let because =
            format!("{count} failed for good and wait for a hand: look with postrider {look} {option}");
        finding.because(because).fixed_by(fix)
    });
    Ok(told.collect())
}

fn late(patient: &Patient<'_>, queue: &QueueName, lag: Duration) -> Finding {
    let is_routed = patient.routes.iter().any(|route| *route.queue == queue.as_str());
    let fix = match patient.config.filter(|_| is_routed) {
        Some(file) => format!("postrider run --config {}", word(&file.display().to_string())),
        None => format!("start a worker for {queue}, or more of them"),
    };
    Finding::warning("lag", format!("queue {queue}"))
        .because(format!("what is due waits for {}: nobody takes it, or too few do", words::span(lag)))
        .fixed_by(fix)
}

/// Keys that wait for a retry run again by themselves; these do not.
async fn parked(
    patient: &Patient<'_>,
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
    let why = first.error.as_deref().unwrap_or("it failed for good");
    let releases = parked.iter().map(|key| {
        format!(
            "postrider keys release --queue {} {} --why 'the cause was mended' {}",
            word(queue.as_str()),
            word(key.key.as_str()),
            patient.option()
        )
    });
    Ok(Some(
        Finding::warning("parked_keys", format!("queue {queue}"))
            .because(format!(
                "key {}{more} waits for a hand, and everything behind it waits, too: {why}",
                first.key
            ))
            .fixed_by(releases.collect::<Vec<_>>().join("\n")),
    ))
}
