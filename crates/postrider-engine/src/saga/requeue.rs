//! Requeueing abandoned follow-ups.

use super::audit::event;
use postrider_core::{
    AuditError, AuditEvent, AuditKind, AuditSink, FollowUp, MessageId, QueueName, State,
    follow_up::has_forgotten,
    inspect::{Action, Operate},
};

/// The result of requeueing follow-ups.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequeueReport {
    /// They are pending again, with no attempt counted.
    pub requeued: Vec<MessageId>,
    /// They were left as they are.
    pub skipped: Vec<(MessageId, RequeueError)>,
}

/// Why a follow-up was not requeued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RequeueError {
    /// It is not abandoned: it is unknown, still in progress, or has succeeded; or another operator was faster.
    NotAbandoned,
    /// It had a payload, which was deleted when it was abandoned: stage it anew.
    Forgotten,
}

/// Requeues abandoned follow-ups of a queue, as [`SagaRunner::requeue`](super::SagaRunner::requeue) does, for operator tools
/// without a runner. The ledger gets the events first.
///
/// # Errors
/// When the ledger or the store fails.
pub async fn requeue(
    store: &dyn Operate,
    ledger: &dyn AuditSink,
    queue: &QueueName,
    ids: &[MessageId],
    action: &Action,
) -> Result<RequeueReport, AuditError> {
    action.check()?;
    let mut report = RequeueReport::default();
    let (mut wanted, mut events) = (Vec::new(), Vec::new());
    for id in ids {
        let entry = store.get(queue, *id).await?.filter(|entry| entry.state == State::Dead);
        match entry {
            None => report.skipped.push((*id, RequeueError::NotAbandoned)),
            Some(entry) if has_forgotten(&entry.message) => {
                report.skipped.push((*id, RequeueError::Forgotten));
            }
            Some(entry) => {
                wanted.push(*id);
                let event_of = match FollowUp::read(&entry.message) {
                    Ok(follow_up) => event(AuditKind::Requeued, &follow_up, *id),
                    Err(_) => AuditEvent { follow_up: Some(*id), ..AuditEvent::new(AuditKind::Requeued) },
                };
                events.push(AuditEvent { actor: Some(action.actor.clone()), ..event_of });
            }
        }
    }
    if wanted.is_empty() {
        return Ok(report);
    }
    ledger.append(&events).await?;
    report.requeued = store.requeue(queue, &wanted, action).await?;
    wanted.retain(|id| !report.requeued.contains(id));
    report.skipped.extend(wanted.into_iter().map(|id| (id, RequeueError::NotAbandoned)));
    Ok(report)
}
