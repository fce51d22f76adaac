//! The steps of a saga: the consequence of each of its calls.

use super::{
    Completion, CompletionOutcome, ResolverCall,
    advance::{AdvanceError, CallEnd, advance, can_compensate, entry_of, read_state},
    audit::event,
    deliver::{FollowUpExecutor, RecordError},
};
use crate::{
    delivery_loop::{Delivery, Outcome},
    failure::Failure,
};
use futures_util::FutureExt;
use postrider_core::{
    AuditEvent, AuditKind, EventType, FollowUp, MessageId, Reason, Settlement, TxBackend,
    saga::{Part, Plan, SagaState},
};
use std::panic::AssertUnwindSafe;
use tokio::time::timeout;

/// The outcome of a call of a saga.
pub(super) struct CallOutcome {
    end: CallEnd,
    reason: Reason,
    error: String,
}

impl CallOutcome {
    pub(super) fn done() -> Self {
        Self { end: CallEnd::Done, reason: Reason::Rejected, error: String::new() }
    }
}

impl<S: TxBackend> FollowUpExecutor<S> {
    /// Starts a saga.
    pub(super) async fn start_saga(
        &self,
        follow_up: &FollowUp,
        delivery: &Delivery,
    ) -> Result<Outcome, RecordError> {
        let Some(plan) = self.plans.get(follow_up.operation().as_str()) else {
            let error = "UnknownPlan".to_owned();
            return self.abandon(Some(follow_up), delivery, Reason::Rejected, error).await;
        };
        let saga = delivery.claimed.id();
        let mut tx = self.store.begin().await?;
        let started = async {
            let log_state = read_state(&self.store, &mut tx, plan, saga).await?;
            if !self.store.settle_in(&mut tx, &delivery.claimed.lease.done()).await? {
                return Ok(false);
            }
            advance(&self.store, &mut tx, plan, saga, &log_state, &plan.begun(), follow_up).await?;
            Ok(true)
        };
        match started.await {
            Ok(true) => self.store.commit(tx).await?,
            Ok(false) => return self.lease_lost(tx).await,
            Err(error) => return self.halt(tx, error, saga, follow_up, delivery).await,
        }
        Ok(Outcome::Committed(Settlement::Done))
    }

    /// Halts the saga until an operator has looked at it; unless only the store failed.
    async fn halt(
        &self,
        tx: S::Tx,
        halted: AdvanceError,
        saga: MessageId,
        follow_up: &FollowUp,
        delivery: &Delivery,
    ) -> Result<Outcome, RecordError> {
        if let AdvanceError::Store(error) = halted {
            return Err(error.into());
        }
        self.store.rollback(tx).await?;
        tracing::error!(
            name: "postrider.saga_halted", %halted, %saga,
            "saga {saga} halted: its log contradicts the outcome of a call ({halted}); manual intervention required"
        );
        self.abandon(Some(follow_up), delivery, Reason::Rejected, "SagaHalted".to_owned()).await
    }

    /// Classifies a call of a saga that is not retried. When its failure makes the saga compensate, it must be certain that
    /// the call had no effect: a first attempt that was rejected had none, unless it is the first since an operator
    /// requeued it. In all other cases only the resolver knows.
    pub(super) async fn classify_failure(
        &self,
        follow_up: &FollowUp,
        part: &Part,
        delivery: &Delivery,
        reason: Reason,
        error: String,
    ) -> Result<CallOutcome, RecordError> {
        let outcome = |end| Ok(CallOutcome { end, reason, error: error.clone() });
        let Some(plan) = self.plans.get(&part.plan).filter(|plan| can_compensate(plan, part)) else {
            return outcome(CallEnd::Abandoned);
        };
        let attempt = delivery.claimed.deliveries;
        if reason == Reason::Rejected && attempt == 1 && !self.is_in_doubt(plan, part).await? {
            return outcome(CallEnd::Failed);
        }
        let Ok(resolver) = self.registry.find(follow_up) else { return outcome(CallEnd::Abandoned) };
        let call = ResolverCall { follow_up: follow_up.clone(), key: delivery.claimed.id(), attempt };
        let checking = AssertUnwindSafe(async { resolver.has_happened(&call).await }).catch_unwind();
        match timeout(self.timeout, checking).await {
            Ok(Ok(Ok(Some(true)))) => outcome(CallEnd::Done),
            Ok(Ok(Ok(Some(false)))) => outcome(CallEnd::Failed),
            _ => outcome(CallEnd::Abandoned),
        }
    }

    async fn is_in_doubt(&self, plan: &Plan, part: &Part) -> Result<bool, RecordError> {
        let mut tx = self.store.begin().await?;
        let log_state = read_state(&self.store, &mut tx, plan, part.saga).await;
        self.store.rollback(tx).await?;
        // A log that cannot be read is reported when the outcome is recorded.
        Ok(log_state.is_ok_and(|log_state| matches!(log_state.state, SagaState::InDoubt { .. })))
    }

    /// A call of a saga has ended: records the outcome, and stages the next call.
    pub(super) async fn advance_saga(
        &self,
        follow_up: &FollowUp,
        part: &Part,
        delivery: &Delivery,
        outcome: CallOutcome,
    ) -> Result<Outcome, RecordError> {
        let Some(plan) = self.plans.get(&part.plan) else {
            let error = "UnknownPlan".to_owned();
            return self.abandon(Some(follow_up), delivery, Reason::Rejected, error).await;
        };
        let claimed = &delivery.claimed;
        let is_abandoned = outcome.end == CallEnd::Abandoned
            || outcome.end == CallEnd::Failed && !can_compensate(plan, part);
        let kind = match outcome.end {
            CallEnd::Done => AuditKind::Succeeded,
            CallEnd::Failed if !is_abandoned => AuditKind::Failed,
            CallEnd::Failed | CallEnd::Abandoned => AuditKind::Abandoned,
        };
        let events = [AuditEvent {
            attempt: Some(claimed.deliveries),
            error: (outcome.end != CallEnd::Done).then(|| outcome.error.clone()),
            step: Some(part.command.step),
            ..event(kind, follow_up, claimed.id())
        }];
        self.audit.append_before(&events).await?;
        let mut tx = self.store.begin().await?;
        let advanced = async {
            let log_state = read_state(&self.store, &mut tx, plan, part.saga).await?;
            let is_ours = if is_abandoned {
                self.store.abandon(&mut tx, &claimed.lease, outcome.reason, &outcome.error).await?
            } else {
                self.store.settle_in(&mut tx, &claimed.lease.done()).await?
            };
            if !is_ours {
                return Ok(None);
            }
            let entry = entry_of(plan, part, outcome.end, log_state.state, &outcome.error);
            Ok(Some(advance(&self.store, &mut tx, plan, part.saga, &log_state, &entry, follow_up).await?))
        };
        let state = match advanced.await {
            Ok(Some(state)) => state,
            Ok(None) => return self.lease_lost(tx).await,
            Err(error) => return self.halt(tx, error, part.saga, follow_up, delivery).await,
        };
        let new = match self.conclude(tx, state, plan, part.saga, follow_up).await {
            Ok((ready, new)) => {
                tx = ready;
                new
            }
            Err(failure) => return self.completion_failed(follow_up, delivery, &failure).await,
        };
        self.audit.append_within(&self.store, &mut tx, &events, &new).await?;
        self.store.commit(tx).await?;
        if !is_abandoned {
            return Ok(Outcome::Committed(Settlement::Done));
        }
        let CallOutcome { reason, error, .. } = outcome;
        self.report_abandoned(Some(follow_up), delivery, reason, &error);
        Ok(Outcome::Committed(Settlement::Dead { reason, error: Some(error) }))
    }

    /// If the saga has ended with this state: runs the completion, and returns its audit event.
    pub(super) async fn conclude(
        &self,
        mut tx: S::Tx,
        state: Option<SagaState>,
        plan: &Plan,
        saga: MessageId,
        follow_up: &FollowUp,
    ) -> Result<(S::Tx, Vec<AuditEvent>), Failure> {
        let (kind, ended) = match state {
            Some(SagaState::Completed) => (AuditKind::Completed, CompletionOutcome::Completed),
            Some(SagaState::Compensated { .. }) => (AuditKind::Compensated, CompletionOutcome::Compensated),
            _ => return Ok((tx, Vec::new())),
        };
        let operation = EventType::stored(plan.name());
        let completed =
            Completion { ended, saga: Some(saga), operation: operation.clone(), ..follow_up.group().into() };
        tx = self.on_complete.run(&self.store, tx, &completed).await?;
        let event = AuditEvent { resolver: None, operation: Some(operation), ..event(kind, follow_up, saga) };
        Ok((tx, vec![event]))
    }
}
