//! Executing one follow-up: the call, the meaning of its result, and how the outcome is recorded.

use super::{
    Resolution, ResolverCall, SagaBackoff,
    advance::Plans,
    audit::{AuditTarget, event, millis},
    completion::OnComplete,
    resolver::{Registry, Resolver},
    step::CallOutcome,
};
use crate::{
    delivery_loop::{BatchDeliver, Deliver, Delivery, Outcome},
    failure::{Failure, Next},
};
use futures_util::{FutureExt, future::BoxFuture};
use postrider_core::{
    AuditError, AuditEvent, AuditKind, Error, EventType, FollowUp, MessageId, QueueName, Reason,
    ResolverName, Settlement, SubjectId, TxBackend, follow_up::GroupProgress, saga,
};
use std::{
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::{Duration, SystemTime},
};
use tokio::time::timeout;
use tracing::Instrument;

/// A follow-up that was abandoned. It contains names, and no error text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Abandonment {
    /// The follow-up's message id.
    pub id: MessageId,
    /// Its queue.
    pub queue: QueueName,
    /// Its subject, if the follow-up could be decoded.
    pub subject: Option<SubjectId>,
    /// Its resolver, if the follow-up could be decoded.
    pub resolver: Option<ResolverName>,
    /// Why it is not retried.
    pub reason: Reason,
    /// The kind of error.
    pub error: String,
    /// The number of attempts.
    pub attempts: u32,
}

type Hook = dyn Fn(Abandonment) + Send + Sync;

/// Executes follow-ups.
pub(super) struct FollowUpExecutor<S: TxBackend> {
    pub(super) store: S,
    pub(super) registry: Registry,
    pub(super) plans: Plans,
    pub(super) audit: AuditTarget,
    pub(super) backoff: SagaBackoff,
    pub(super) max_attempts: u32,
    pub(super) timeout: Duration,
    pub(super) on_complete: OnComplete<S>,
    pub(super) on_abandoned: Option<Arc<Hook>>,
}

/// The result of a call.
enum CallResult {
    Succeeded,
    Reschedule { not_before: SystemTime, at_least: Duration },
    Retry { after: Duration, error: String },
    Abandoned { reason: Reason, error: String },
}

/// Why an outcome could not be recorded.
#[derive(Debug, thiserror::Error)]
pub(super) enum RecordError {
    #[error(transparent)]
    Store(#[from] Error),
    #[error(transparent)]
    Audit(#[from] AuditError),
}

impl RecordError {
    /// The kind of error: the text of a sink or a database may contain personal data.
    fn kind(&self) -> &'static str {
        match self {
            Self::Audit(AuditError::Duplicate(_)) => "Duplicate",
            Self::Audit(AuditError::Unreadable { .. }) => "ReplayError",
            Self::Audit(AuditError::Store(Error::Unavailable(_))) | Self::Store(Error::Unavailable(_)) => {
                "Unavailable"
            }
            Self::Audit(AuditError::Store(Error::SchemaMismatch(_)))
            | Self::Store(Error::SchemaMismatch(_)) => "SchemaMismatch",
            Self::Audit(AuditError::Invalid(_) | AuditError::Store(Error::Invalid(_)))
            | Self::Store(Error::Invalid(_)) => "Invalid",
            Self::Audit(_) | Self::Store(_) => "Other",
        }
    }
}

impl<S: TxBackend> Deliver for FollowUpExecutor<S> {
    fn deliver<'d>(&'d self, delivery: &'d Arc<Delivery>) -> BoxFuture<'d, Outcome> {
        let claimed = &delivery.claimed;
        let span = tracing::info_span!(
            "postrider.follow_up",
            queue = %claimed.lease.queue(),
            message_id = %claimed.id(),
            operation = claimed.message.event_type().map(EventType::as_str),
            deliveries = claimed.deliveries,
        );
        Box::pin(self.execute(delivery).instrument(span))
    }

    /// A success is recorded together with the completion, in a transaction of its own.
    fn settles_itself(&self, _: &Delivery) -> bool {
        true
    }

    /// The outcome of a cancelled call is unknown: the attempt counts.
    fn keeps_lease_when_cancelled(&self) -> bool {
        true
    }

    fn as_batch(&self) -> Option<&dyn BatchDeliver> {
        None
    }
}

impl<S: TxBackend> FollowUpExecutor<S> {
    async fn execute(&self, delivery: &Delivery) -> Outcome {
        let recorded = match FollowUp::read(&delivery.claimed.message) {
            Ok(follow_up) if follow_up.resolver().as_str() == saga::RESOLVER => {
                self.start_saga(&follow_up, delivery).await
            }
            Ok(follow_up) => match self.call_and_classify(&follow_up, delivery).await {
                CallResult::Retry { after, error } => Ok(retry(after, error)),
                CallResult::Reschedule { not_before, at_least } => {
                    self.reschedule(&follow_up, delivery, not_before, at_least).await
                }
                CallResult::Succeeded => match follow_up.part() {
                    Some(part) => self.advance_saga(&follow_up, part, delivery, CallOutcome::done()).await,
                    None => self.succeed(&follow_up, delivery).await,
                },
                CallResult::Abandoned { reason, error } => match follow_up.part() {
                    Some(part) => {
                        match self.classify_failure(&follow_up, part, delivery, reason, error).await {
                            Ok(outcome) => self.advance_saga(&follow_up, part, delivery, outcome).await,
                            Err(error) => Err(error),
                        }
                    }
                    None => self.abandon(Some(&follow_up), delivery, reason, error).await,
                },
            },
            Err(invalid) => {
                tracing::warn!(name: "postrider.not_a_follow_up", %invalid, "message is not a follow-up: {invalid}; abandoned");
                self.abandon(None, delivery, Reason::Undecodable, "NoFollowUp".to_owned()).await
            }
        };
        recorded.unwrap_or_else(|error| {
            tracing::error!(
                name: "postrider.outcome_not_recorded", error = error.kind(),
                "outcome of a follow-up not recorded ({}); its call is repeated when the lease expires", error.kind()
            );
            Outcome::LeftToLease
        })
    }

    /// Makes the call and classifies its result.
    async fn call_and_classify(&self, follow_up: &FollowUp, delivery: &Delivery) -> CallResult {
        let attempt = delivery.claimed.deliveries;
        let abandoned = |reason, error: &str| CallResult::Abandoned { reason, error: error.to_owned() };
        if delivery.claimed.begun() >= self.max_attempts {
            // Earlier runners died in calls, before they recorded an outcome.
            return abandoned(Reason::MaxDeliveries, "MaxDeliveries");
        }
        let resolver = match self.registry.find(follow_up) {
            Ok(resolver) => resolver,
            Err(kind) => return abandoned(Reason::Rejected, kind),
        };
        let call = ResolverCall { follow_up: follow_up.clone(), key: delivery.claimed.id(), attempt };
        let failure = match self.call(resolver.as_ref(), &call).await {
            Ok(Resolution::Done | Resolution::AlreadyGone) => return CallResult::Succeeded,
            Ok(Resolution::NotBefore(not_before)) => {
                return CallResult::Reschedule { not_before, at_least: self.backoff.delay(1) };
            }
            Err(failure) => failure,
        };
        match failure.next {
            Next::Reject | Next::Undecodable => abandoned(Reason::Rejected, failure.kind()),
            Next::Snooze(at_least) => CallResult::Reschedule { not_before: SystemTime::UNIX_EPOCH, at_least },
            Next::Retry | Next::RetryAfter(_) => self.retry_or_abandon(delivery, &failure),
        }
    }

    /// Counts the calls that began, and not the claims: another follow-up may have crashed the runner.
    fn retry_or_abandon(&self, delivery: &Delivery, failure: &Failure) -> CallResult {
        let attempt = delivery.claimed.begun().saturating_add(1);
        let error = failure.kind().to_owned();
        if attempt >= self.max_attempts {
            return CallResult::Abandoned { reason: Reason::RetriesExhausted, error };
        }
        let after = match failure.next {
            Next::RetryAfter(after) => after,
            _ => self.backoff.delay(attempt),
        };
        CallResult::Retry { after, error }
    }

    async fn call(&self, resolver: &dyn Resolver, call: &ResolverCall) -> Result<Resolution, Failure> {
        let calling = AssertUnwindSafe(async { resolver.resolve(call).await }).catch_unwind();
        match timeout(self.timeout, calling).await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) => Err(Failure::of_kind(Next::Retry, "Panic", "the resolver panicked")),
            Err(_) => Err(Failure::of_kind(Next::Retry, "Timeout", "the call exceeded its timeout")),
        }
    }

    async fn succeed(&self, follow_up: &FollowUp, delivery: &Delivery) -> Result<Outcome, RecordError> {
        let claimed = &delivery.claimed;
        let events = [AuditEvent {
            attempt: Some(claimed.deliveries),
            ..event(AuditKind::Succeeded, follow_up, claimed.id())
        }];
        self.audit.append_before(&events).await?;
        let group = follow_up.group();
        let mut tx = self.store.begin().await?;
        let mut new = Vec::new();
        match self.store.land(&mut tx, &claimed.lease, &group).await? {
            GroupProgress::Lost => return self.lease_lost(tx).await,
            GroupProgress::Open => {}
            GroupProgress::Last => {
                tx = match self.on_complete.run(&self.store, tx, &group.clone().into()).await {
                    Ok(tx) => tx,
                    Err(failure) => return self.completion_failed(follow_up, delivery, &failure).await,
                };
                new.push(AuditEvent {
                    resolver: None,
                    ..event(AuditKind::Completed, follow_up, claimed.id())
                });
            }
        }
        self.audit.append_within(&self.store, &mut tx, &events, &new).await?;
        self.store.commit(tx).await?;
        if !new.is_empty() {
            tracing::info!(
                name: "postrider.completed", operation = %group.operation,
                "last follow-up of a subject succeeded: operation {} completed", group.operation
            );
        }
        Ok(Outcome::Committed(Settlement::Done))
    }

    /// The call succeeded, but the completion failed: the follow-up is retried as a whole, or abandoned.
    pub(super) async fn completion_failed(
        &self,
        follow_up: &FollowUp,
        delivery: &Delivery,
        failure: &Failure,
    ) -> Result<Outcome, RecordError> {
        match self.retry_or_abandon(delivery, failure) {
            CallResult::Retry { after, error } => Ok(retry(after, error)),
            _ => {
                let error = failure.kind().to_owned();
                self.abandon(Some(follow_up), delivery, Reason::RetriesExhausted, error).await
            }
        }
    }

    pub(super) async fn abandon(
        &self,
        follow_up: Option<&FollowUp>,
        delivery: &Delivery,
        reason: Reason,
        error: String,
    ) -> Result<Outcome, RecordError> {
        let claimed = &delivery.claimed;
        let events = [AuditEvent {
            error: Some(error.clone()),
            attempt: Some(claimed.deliveries),
            ..match follow_up {
                Some(follow_up) => event(AuditKind::Abandoned, follow_up, claimed.id()),
                None => AuditEvent { follow_up: Some(claimed.id()), ..AuditEvent::new(AuditKind::Abandoned) },
            }
        }];
        self.audit.append_before(&events).await?;
        let mut tx = self.store.begin().await?;
        if !self.store.abandon(&mut tx, &claimed.lease, reason, &error).await? {
            return self.lease_lost(tx).await;
        }
        self.audit.append_within(&self.store, &mut tx, &events, &[]).await?;
        self.store.commit(tx).await?;
        self.report_abandoned(follow_up, delivery, reason, &error);
        Ok(Outcome::Committed(Settlement::Dead { reason, error: Some(error) }))
    }

    async fn reschedule(
        &self,
        follow_up: &FollowUp,
        delivery: &Delivery,
        not_before: SystemTime,
        at_least: Duration,
    ) -> Result<Outcome, RecordError> {
        let events = [AuditEvent {
            until_ms: Some(millis(not_before)).filter(|at| *at > 0),
            ..event(AuditKind::Scheduled, follow_up, delivery.claimed.id())
        }];
        self.audit.append_before(&events).await?;
        let mut tx = self.store.begin().await?;
        let lease = &delivery.claimed.lease;
        let is_ours = if follow_up.part().is_some() {
            // Its attempts are kept: whether one of them may have taken effect decides what a failure means.
            let wait = not_before.duration_since(delivery.store_now()).unwrap_or_default().max(at_least);
            self.store.settle_in(&mut tx, &lease.snooze(wait)).await?
        } else {
            self.store.schedule(&mut tx, lease, not_before, at_least).await?.is_some()
        };
        if !is_ours {
            return self.lease_lost(tx).await;
        }
        self.audit.append_within(&self.store, &mut tx, &events, &[]).await?;
        self.store.commit(tx).await?;
        Ok(Outcome::Committed(Settlement::Snooze { after: at_least }))
    }

    pub(super) async fn lease_lost(&self, tx: S::Tx) -> Result<Outcome, RecordError> {
        self.store.rollback(tx).await?;
        Ok(Outcome::Lost)
    }

    /// Logs an abandoned follow-up and calls the hook. A panic of the hook changes nothing, and the runner continues.
    pub(super) fn report_abandoned(
        &self,
        follow_up: Option<&FollowUp>,
        delivery: &Delivery,
        reason: Reason,
        error: &str,
    ) {
        tracing::error!(
            name: "postrider.abandoned", error, %reason,
            "follow-up abandoned ({reason}: {error}): manual intervention required"
        );
        let Some(hook) = &self.on_abandoned else { return };
        let abandoned = Abandonment {
            id: delivery.claimed.id(),
            queue: delivery.claimed.lease.queue().clone(),
            subject: follow_up.map(|follow_up| follow_up.subject().clone()),
            resolver: follow_up.map(|follow_up| follow_up.resolver().clone()),
            reason,
            error: error.to_owned(),
            attempts: delivery.claimed.deliveries,
        };
        if catch_unwind(AssertUnwindSafe(|| hook(abandoned))).is_err() {
            tracing::error!(name: "postrider.hook_panicked", "hook `on_abandoned` panicked; the follow-up is abandoned all the same");
        }
    }
}

fn retry(after: Duration, error: String) -> Outcome {
    tracing::info!(name: "postrider.retried", error, ?after, "call failed ({error}); retrying in {after:?}");
    Outcome::Settle(Settlement::Retry { after, error: Some(error) })
}

impl<S: TxBackend> fmt::Debug for FollowUpExecutor<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FollowUpExecutor").field("registry", &self.registry).finish_non_exhaustive()
    }
}
