//! The course of a saga: what each of its calls leads to.

use super::{
    Call, Completed, Ended,
    books::event,
    courier::{Courier, Unwritten},
    plot::{End, Halted, advance, entry_of, stands, turns},
};
use crate::{
    carry::{Delivery, Outcome},
    failure::Failure,
};
use futures_util::FutureExt;
use postrider_core::{
    AuditEvent, AuditKind, EventType, Follow, FollowUp, MessageId, Reason, Settlement,
    saga::{Part, Plan, State},
};
use std::panic::AssertUnwindSafe;
use tokio::time::timeout;

/// What was found out about a call of a saga.
pub(super) struct Found {
    end: End,
    reason: Reason,
    error: String,
}

impl Found {
    pub(super) fn done() -> Self {
        Self { end: End::Done, reason: Reason::Rejected, error: String::new() }
    }
}

impl<S: Follow> Courier<S> {
    /// Begins a saga.
    pub(super) async fn begin(
        &self,
        follow_up: &FollowUp,
        delivery: &Delivery,
    ) -> Result<Outcome, Unwritten> {
        let Some(plan) = self.plans.get(follow_up.operation().as_str()) else {
            let error = "UnknownPlan".to_owned();
            return self.abandon(Some(follow_up), delivery, Reason::Rejected, error).await;
        };
        let saga = delivery.claimed.id();
        let mut tx = self.store.begin().await?;
        let begun = async {
            let standing = stands(&self.store, &mut tx, plan, saga).await?;
            if !self.store.settle_in(&mut tx, &delivery.claimed.lease.done()).await? {
                return Ok(false);
            }
            advance(&self.store, &mut tx, plan, saga, &standing, &plan.begun(), follow_up).await?;
            Ok(true)
        };
        match begun.await {
            Ok(true) => self.store.commit(tx).await?,
            Ok(false) => return self.lost(tx).await,
            Err(halted) => return self.halt(tx, halted, saga, follow_up, delivery).await,
        }
        Ok(Outcome::Committed(Settlement::Done))
    }

    /// Nothing may be done for this saga until somebody has looked; unless it is only the store that failed.
    async fn halt(
        &self,
        tx: S::Tx,
        halted: Halted,
        saga: MessageId,
        follow_up: &FollowUp,
        delivery: &Delivery,
    ) -> Result<Outcome, Unwritten> {
        if let Halted::Store(error) = halted {
            return Err(error.into());
        }
        self.store.rollback(tx).await?;
        tracing::error!(name: "postrider.saga_halted", %halted, %saga, "the log of a saga contradicts what happened");
        self.abandon(Some(follow_up), delivery, Reason::Rejected, "SagaHalted".to_owned()).await
    }

    /// A call of a saga is not tried again. Where its failure makes the saga turn, it has to be certain that it had no effect: a first
    /// attempt that was refused had none, unless it is the first since somebody put it back. Of anything else only the resolver can tell.
    pub(super) async fn look(
        &self,
        follow_up: &FollowUp,
        part: &Part,
        delivery: &Delivery,
        reason: Reason,
        error: String,
    ) -> Result<Found, Unwritten> {
        let found = |end| Ok(Found { end, reason, error: error.clone() });
        let Some(plan) = self.plans.get(&part.plan).filter(|plan| turns(plan, part)) else {
            return found(End::GivenUp);
        };
        let attempt = delivery.claimed.deliveries;
        if reason == Reason::Rejected && attempt == 1 && !self.is_in_doubt(plan, part).await? {
            return found(End::Failed);
        }
        let Ok(resolver) = self.registry.find(follow_up) else { return found(End::GivenUp) };
        let call = Call { follow_up: follow_up.clone(), key: delivery.claimed.id(), attempt };
        let asking = AssertUnwindSafe(async { resolver.has_happened(&call).await }).catch_unwind();
        match timeout(self.timeout, asking).await {
            Ok(Ok(Ok(Some(true)))) => found(End::Done),
            Ok(Ok(Ok(Some(false)))) => found(End::Failed),
            _ => found(End::GivenUp),
        }
    }

    async fn is_in_doubt(&self, plan: &Plan, part: &Part) -> Result<bool, Unwritten> {
        let mut tx = self.store.begin().await?;
        let standing = stands(&self.store, &mut tx, plan, part.saga).await;
        self.store.rollback(tx).await?;
        // What cannot be read is told when the end is written down.
        Ok(standing.is_ok_and(|standing| matches!(standing.state, State::InDoubt { .. })))
    }

    /// A call of a saga has ended: writes that down, and sets the next one going.
    pub(super) async fn go_on(
        &self,
        follow_up: &FollowUp,
        part: &Part,
        delivery: &Delivery,
        found: Found,
    ) -> Result<Outcome, Unwritten> {
        let Some(plan) = self.plans.get(&part.plan) else {
            let error = "UnknownPlan".to_owned();
            return self.abandon(Some(follow_up), delivery, Reason::Rejected, error).await;
        };
        let claimed = &delivery.claimed;
        let is_given_up = found.end == End::GivenUp || found.end == End::Failed && !turns(plan, part);
        let kind = match found.end {
            End::Done => AuditKind::Succeeded,
            End::Failed if !is_given_up => AuditKind::Failed,
            End::Failed | End::GivenUp => AuditKind::Abandoned,
        };
        let told = [AuditEvent {
            attempt: Some(claimed.deliveries),
            error: (found.end != End::Done).then(|| found.error.clone()),
            step: Some(part.command.step),
            ..event(kind, follow_up, claimed.id())
        }];
        self.books.before(&told).await?;
        let mut tx = self.store.begin().await?;
        let moved = async {
            let standing = stands(&self.store, &mut tx, plan, part.saga).await?;
            let is_ours = if is_given_up {
                self.store.abandon(&mut tx, &claimed.lease, found.reason, &found.error).await?
            } else {
                self.store.settle_in(&mut tx, &claimed.lease.done()).await?
            };
            if !is_ours {
                return Ok(None);
            }
            let entry = entry_of(plan, part, found.end, standing.state, &found.error);
            Ok(Some(advance(&self.store, &mut tx, plan, part.saga, &standing, &entry, follow_up).await?))
        };
        let state = match moved.await {
            Ok(Some(state)) => state,
            Ok(None) => return self.lost(tx).await,
            Err(halted) => return self.halt(tx, halted, part.saga, follow_up, delivery).await,
        };
        let new = match self.conclude(tx, state, plan, part.saga, follow_up).await {
            Ok((ready, new)) => {
                tx = ready;
                new
            }
            Err(failure) => return self.not_completed(follow_up, delivery, &failure).await,
        };
        self.books.within(&self.store, &mut tx, &told, &new).await?;
        self.store.commit(tx).await?;
        if !is_given_up {
            return Ok(Outcome::Committed(Settlement::Done));
        }
        let Found { reason, error, .. } = found;
        self.tell_abandoned(Some(follow_up), delivery, reason, &error);
        Ok(Outcome::Committed(Settlement::Dead { reason, error: Some(error) }))
    }

    /// If a saga has ended with this state: lets happen what is to happen then, and answers with the event that tells of it.
    pub(super) async fn conclude(
        &self,
        mut tx: S::Tx,
        state: Option<State>,
        plan: &Plan,
        saga: MessageId,
        follow_up: &FollowUp,
    ) -> Result<(S::Tx, Vec<AuditEvent>), Failure> {
        let (kind, ended) = match state {
            Some(State::Completed) => (AuditKind::Completed, Ended::Completed),
            Some(State::Compensated { .. }) => (AuditKind::Compensated, Ended::Compensated),
            _ => return Ok((tx, Vec::new())),
        };
        let operation = EventType::stored(plan.name());
        let completed =
            Completed { ended, saga: Some(saga), operation: operation.clone(), ..follow_up.group().into() };
        tx = self.on_complete.happen(&self.store, tx, &completed).await?;
        let told = AuditEvent { resolver: None, operation: Some(operation), ..event(kind, follow_up, saga) };
        Ok((tx, vec![told]))
    }
}
