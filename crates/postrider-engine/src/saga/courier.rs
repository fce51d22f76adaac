//! Carrying out one follow-up: the call, what its answer means, and how that is written down.

use super::{
    Backoff, Call, Resolved,
    books::{Books, event, millis},
    completion::OnComplete,
    course::Found,
    plot::Plans,
    resolver::{Registry, Resolver},
};
use crate::{
    carry::{Deliver, Delivery, Outcome, Together},
    failure::{Failure, Next},
};
use futures_util::{FutureExt, future::BoxFuture};
use postrider_core::{
    AuditError, AuditEvent, AuditKind, Error, EventType, Follow, FollowUp, MessageId, QueueName, Reason,
    ResolverName, Settlement, SubjectId, follow_up::Landing, saga,
};
use std::{
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::{Duration, SystemTime},
};
use tokio::time::timeout;
use tracing::Instrument;

/// A follow-up was given up. It carries names, and nothing that an error said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Abandoned {
    /// The follow-up.
    pub id: MessageId,
    /// Its queue.
    pub queue: QueueName,
    /// Whom it was about, if it could be read.
    pub subject: Option<SubjectId>,
    /// Who was to carry it out, if it could be read.
    pub resolver: Option<ResolverName>,
    /// Why it is not tried again.
    pub reason: Reason,
    /// The kind of error.
    pub error: String,
    /// How often it was tried.
    pub attempts: u32,
}

type Hook = dyn Fn(Abandoned) + Send + Sync;

/// Carries out follow-ups.
pub(super) struct Courier<S: Follow> {
    pub(super) store: S,
    pub(super) registry: Registry,
    pub(super) plans: Plans,
    pub(super) books: Books,
    pub(super) backoff: Backoff,
    pub(super) max_attempts: u32,
    pub(super) timeout: Duration,
    pub(super) on_complete: OnComplete<S>,
    pub(super) on_abandoned: Option<Arc<Hook>>,
}

/// What a call came to.
enum Verdict {
    Succeeded,
    Put { not_before: SystemTime, at_least: Duration },
    Retry { after: Duration, error: String },
    Abandoned { reason: Reason, error: String },
}

/// Why an outcome could not be written down.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unwritten {
    #[error(transparent)]
    Store(#[from] Error),
    #[error(transparent)]
    Audit(#[from] AuditError),
}

impl Unwritten {
    /// The kind of error: what a sink or a database says may carry personal data.
    fn kind(&self) -> &'static str {
        match self {
            Self::Audit(AuditError::Duplicate(_)) => "Duplicate",
            Self::Audit(AuditError::Unreadable { .. }) => "Unreadable",
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

impl<S: Follow> Deliver for Courier<S> {
    fn deliver<'d>(&'d self, delivery: &'d Arc<Delivery>) -> BoxFuture<'d, Outcome> {
        let claimed = &delivery.claimed;
        let span = tracing::info_span!(
            "postrider.follow_up",
            queue = %claimed.lease.queue(),
            message = %claimed.id(),
            operation = claimed.message.event_type().map(EventType::as_str),
            attempt = claimed.deliveries,
        );
        Box::pin(self.carry_out(delivery).instrument(span))
    }

    /// A success is written down with its completion, in a transaction of its own.
    fn commits(&self, _: &Delivery) -> bool {
        true
    }

    /// Nobody knows what became of a call that was cut short: the attempt counts.
    fn leaves(&self) -> bool {
        true
    }

    fn together(&self) -> Option<&dyn Together> {
        None
    }
}

impl<S: Follow> Courier<S> {
    async fn carry_out(&self, delivery: &Delivery) -> Outcome {
        let written = match FollowUp::read(&delivery.claimed.message) {
            Ok(follow_up) if follow_up.resolver().as_str() == saga::RESOLVER => {
                self.begin(&follow_up, delivery).await
            }
            Ok(follow_up) => match self.judge(&follow_up, delivery).await {
                Verdict::Retry { after, error } => Ok(retried(after, error)),
                Verdict::Put { not_before, at_least } => {
                    self.put_off(&follow_up, delivery, not_before, at_least).await
                }
                Verdict::Succeeded => match follow_up.part() {
                    Some(part) => self.go_on(&follow_up, part, delivery, Found::done()).await,
                    None => self.succeed(&follow_up, delivery).await,
                },
                Verdict::Abandoned { reason, error } => match follow_up.part() {
                    Some(part) => match self.look(&follow_up, part, delivery, reason, error).await {
                        Ok(found) => self.go_on(&follow_up, part, delivery, found).await,
                        Err(unwritten) => Err(unwritten),
                    },
                    None => self.abandon(Some(&follow_up), delivery, reason, error).await,
                },
            },
            Err(invalid) => {
                tracing::warn!(name: "postrider.no_follow_up", %invalid, "the message is no follow-up");
                self.abandon(None, delivery, Reason::Undecodable, "NoFollowUp".to_owned()).await
            }
        };
        written.unwrap_or_else(|error| {
            tracing::error!(
                name: "postrider.outcome_unwritten", error = error.kind(),
                "how a call ended could not be written down; it is made again when its lease has lapsed"
            );
            Outcome::Left
        })
    }

    /// Makes the call, and says what its answer means.
    async fn judge(&self, follow_up: &FollowUp, delivery: &Delivery) -> Verdict {
        let attempt = delivery.claimed.deliveries;
        let given_up = |reason, error: &str| Verdict::Abandoned { reason, error: error.to_owned() };
        if attempt > self.max_attempts {
            // Whoever had it did not live to tell.
            return given_up(Reason::MaxDeliveries, "MaxDeliveries");
        }
        let resolver = match self.registry.find(follow_up) {
            Ok(resolver) => resolver,
            Err(kind) => return given_up(Reason::Rejected, kind),
        };
        let call = Call { follow_up: follow_up.clone(), key: delivery.claimed.id(), attempt };
        let failure = match self.call(resolver.as_ref(), &call).await {
            Ok(Resolved::Done | Resolved::AlreadyGone) => return Verdict::Succeeded,
            Ok(Resolved::NotBefore(not_before)) => {
                return Verdict::Put { not_before, at_least: self.backoff.delay(1) };
            }
            Err(failure) => failure,
        };
        match failure.next {
            Next::Reject | Next::Undecodable => given_up(Reason::Rejected, failure.kind()),
            Next::Snooze(at_least) => Verdict::Put { not_before: SystemTime::UNIX_EPOCH, at_least },
            Next::Retry | Next::RetryAfter(_) => self.again(attempt, &failure),
        }
    }

    fn again(&self, attempt: u32, failure: &Failure) -> Verdict {
        let error = failure.kind().to_owned();
        if attempt >= self.max_attempts {
            return Verdict::Abandoned { reason: Reason::RetriesExhausted, error };
        }
        let after = match failure.next {
            Next::RetryAfter(after) => after,
            _ => self.backoff.delay(attempt),
        };
        Verdict::Retry { after, error }
    }

    async fn call(&self, resolver: &dyn Resolver, call: &Call) -> Result<Resolved, Failure> {
        let calling = AssertUnwindSafe(async { resolver.resolve(call).await }).catch_unwind();
        match timeout(self.timeout, calling).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(Failure::of_kind(Next::Retry, "Panic", "the resolver panicked")),
            Err(_) => Err(Failure::of_kind(Next::Retry, "Timeout", "the call took too long")),
        }
    }

    async fn succeed(&self, follow_up: &FollowUp, delivery: &Delivery) -> Result<Outcome, Unwritten> {
        let claimed = &delivery.claimed;
        let told = [AuditEvent {
            attempt: Some(claimed.deliveries),
            ..event(AuditKind::Succeeded, follow_up, claimed.id())
        }];
        self.books.before(&told).await?;
        let group = follow_up.group();
        let mut tx = self.store.begin().await?;
        let mut new = Vec::new();
        match self.store.land(&mut tx, &claimed.lease, &group).await? {
            Landing::Lost => return self.lost(tx).await,
            Landing::Open => {}
            Landing::Last => {
                tx = match self.on_complete.happen(&self.store, tx, &group.clone().into()).await {
                    Ok(tx) => tx,
                    Err(failure) => return self.not_completed(follow_up, delivery, &failure).await,
                };
                new.push(AuditEvent {
                    resolver: None,
                    ..event(AuditKind::Completed, follow_up, claimed.id())
                });
            }
        }
        self.books.within(&self.store, &mut tx, &told, &new).await?;
        self.store.commit(tx).await?;
        if !new.is_empty() {
            tracing::info!(name: "postrider.completed", operation = %group.operation, "the last follow-up of its subject has landed");
        }
        Ok(Outcome::Committed(Settlement::Done))
    }

    /// The call was made, and what is to happen at the end failed: all of it is done again, or given up.
    pub(super) async fn not_completed(
        &self,
        follow_up: &FollowUp,
        delivery: &Delivery,
        failure: &Failure,
    ) -> Result<Outcome, Unwritten> {
        match self.again(delivery.claimed.deliveries, failure) {
            Verdict::Retry { after, error } => Ok(retried(after, error)),
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
    ) -> Result<Outcome, Unwritten> {
        let claimed = &delivery.claimed;
        let told = [AuditEvent {
            error: Some(error.clone()),
            attempt: Some(claimed.deliveries),
            ..match follow_up {
                Some(follow_up) => event(AuditKind::Abandoned, follow_up, claimed.id()),
                None => AuditEvent { follow_up: Some(claimed.id()), ..AuditEvent::new(AuditKind::Abandoned) },
            }
        }];
        self.books.before(&told).await?;
        let mut tx = self.store.begin().await?;
        if !self.store.abandon(&mut tx, &claimed.lease, reason, &error).await? {
            return self.lost(tx).await;
        }
        self.books.within(&self.store, &mut tx, &told, &[]).await?;
        self.store.commit(tx).await?;
        self.tell_abandoned(follow_up, delivery, reason, &error);
        Ok(Outcome::Committed(Settlement::Dead { reason, error: Some(error) }))
    }

    async fn put_off(
        &self,
        follow_up: &FollowUp,
        delivery: &Delivery,
        not_before: SystemTime,
        at_least: Duration,
    ) -> Result<Outcome, Unwritten> {
        let told = [AuditEvent {
            until_ms: Some(millis(not_before)).filter(|at| *at > 0),
            ..event(AuditKind::Scheduled, follow_up, delivery.claimed.id())
        }];
        self.books.before(&told).await?;
        let mut tx = self.store.begin().await?;
        let lease = &delivery.claimed.lease;
        let is_ours = if follow_up.part().is_some() {
            // Its attempts are not forgotten: whether one of them may have had an effect decides what a failure means.
            let wait = not_before.duration_since(SystemTime::now()).unwrap_or_default().max(at_least);
            self.store.settle_in(&mut tx, &lease.snooze(wait)).await?
        } else {
            self.store.schedule(&mut tx, lease, not_before, at_least).await?.is_some()
        };
        if !is_ours {
            return self.lost(tx).await;
        }
        self.books.within(&self.store, &mut tx, &told, &[]).await?;
        self.store.commit(tx).await?;
        Ok(Outcome::Committed(Settlement::Snooze { after: at_least }))
    }

    pub(super) async fn lost(&self, tx: S::Tx) -> Result<Outcome, Unwritten> {
        self.store.rollback(tx).await?;
        Ok(Outcome::Lost)
    }

    /// Tells that a follow-up was given up. Whatever the hook does, it is so, and the runner goes on.
    pub(super) fn tell_abandoned(
        &self,
        follow_up: Option<&FollowUp>,
        delivery: &Delivery,
        reason: Reason,
        error: &str,
    ) {
        tracing::error!(name: "postrider.abandoned", error, %reason, "a follow-up was given up; it waits for a hand");
        let Some(hook) = &self.on_abandoned else { return };
        let abandoned = Abandoned {
            id: delivery.claimed.id(),
            queue: delivery.claimed.lease.queue().clone(),
            subject: follow_up.map(|follow_up| follow_up.subject().clone()),
            resolver: follow_up.map(|follow_up| follow_up.resolver().clone()),
            reason,
            error: error.to_owned(),
            attempts: delivery.claimed.deliveries,
        };
        if catch_unwind(AssertUnwindSafe(|| hook(abandoned))).is_err() {
            tracing::error!(name: "postrider.hook_panicked", "the hook for abandoned follow-ups panicked");
        }
    }
}

fn retried(after: Duration, error: String) -> Outcome {
    tracing::info!(name: "postrider.retried", error, ?after, "failed; will be tried again");
    Outcome::Settle(Settlement::Retry { after, error: Some(error) })
}

impl<S: Follow> fmt::Debug for Courier<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Courier").field("registry", &self.registry).finish_non_exhaustive()
    }
}
