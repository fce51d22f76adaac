//! Puts back what was given up.

use super::books::event;
use postrider_core::{
    AuditError, AuditEvent, AuditKind, AuditSink, FollowUp, MessageId, QueueName, State,
    follow_up::has_forgotten,
    inspect::{Action, Operate},
};

/// What became of follow-ups that were to be put back.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Requeued {
    /// They are pending again, with no attempt behind them.
    pub requeued: Vec<MessageId>,
    /// They were left as they are.
    pub skipped: Vec<(MessageId, Unrequeued)>,
}

/// Why a follow-up was not put back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unrequeued {
    /// It is not abandoned: it is unknown, still carried out, or has succeeded; or somebody else was faster.
    NotAbandoned,
    /// It had a payload, which was forgotten when it was given up: stage it anew.
    Forgotten,
}

/// Puts abandoned follow-ups of a queue back, as [`SagaRunner::requeue`](super::SagaRunner::requeue) does, for whoever has no runner: a
/// program for operators. The ledger is told first.
///
/// # Errors
/// When the ledger or the store fails.
pub async fn requeue(
    store: &dyn Operate,
    ledger: &dyn AuditSink,
    queue: &QueueName,
    ids: &[MessageId],
    action: &Action,
) -> Result<Requeued, AuditError> {
    action.check()?;
    let mut answer = Requeued::default();
    let (mut wanted, mut events) = (Vec::new(), Vec::new());
    for id in ids {
        let entry = store.get(queue, *id).await?.filter(|entry| entry.state == State::Dead);
        match entry {
            None => answer.skipped.push((*id, Unrequeued::NotAbandoned)),
            Some(entry) if has_forgotten(&entry.message) => {
                answer.skipped.push((*id, Unrequeued::Forgotten));
            }
            Some(entry) => {
                wanted.push(*id);
                let told = match FollowUp::read(&entry.message) {
                    Ok(follow_up) => event(AuditKind::Requeued, &follow_up, *id),
                    Err(_) => AuditEvent { follow_up: Some(*id), ..AuditEvent::new(AuditKind::Requeued) },
                };
                events.push(AuditEvent { actor: Some(action.actor.clone()), ..told });
            }
        }
    }
    if wanted.is_empty() {
        return Ok(answer);
    }
    ledger.append(&events).await?;
    answer.requeued = store.requeue(queue, &wanted, action).await?;
    wanted.retain(|id| !answer.requeued.contains(id));
    answer.skipped.extend(wanted.into_iter().map(|id| (id, Unrequeued::NotAbandoned)));
    Ok(answer)
}
