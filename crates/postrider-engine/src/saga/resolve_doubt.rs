//! Sagas in doubt, which wait for an operator.

use super::{
    SagaRunner,
    advance::{AdvanceError, advance, read_state},
    audit::event,
};
use postrider_core::{
    AuditError, AuditEvent, AuditKind, Error, FollowUp, MessageId, TxBackend,
    inspect::{Action, Inspect as _, Operate as _},
    saga::{Command, LogEntry, Plan, SagaState},
};

/// Why a doubt was not resolved. Nothing changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ResolveError {
    /// This runner knows no running saga with this id and one of its plans.
    #[error("saga {0} is not running in this queue, or its plan is not registered on this runner")]
    Unknown(MessageId),
    /// The saga is not in doubt.
    #[error("the saga is not in doubt: its state is {0}")]
    NotInDoubt(SagaState),
    /// The log of the saga cannot be read, or contradicts this resolution.
    #[error("{0}")]
    Halted(String),
    /// The completion of the saga failed, with an error of this kind.
    #[error("the completion of the saga failed: {0}; retry")]
    CompletionFailed(String),
    /// The ledger or the store failed: retry.
    #[error(transparent)]
    Failed(#[from] AuditError),
}

impl From<Error> for ResolveError {
    fn from(error: Error) -> Self {
        Self::Failed(error.into())
    }
}

impl From<AdvanceError> for ResolveError {
    fn from(halted: AdvanceError) -> Self {
        match halted {
            AdvanceError::Store(error) => error.into(),
            other => Self::Halted(other.to_string()),
        }
    }
}

impl<S: TxBackend> SagaRunner<S> {
    /// The state of a saga, by its log. `None` if it has not started or has ended.
    ///
    /// # Errors
    /// When its log cannot be read, or the store fails.
    pub async fn saga_state(&self, saga: MessageId) -> Result<Option<SagaState>, ResolveError> {
        let mut tx = self.executor.store.begin().await?;
        let state = match self.plan_of(&mut tx, saga).await? {
            Some(plan) => Some(read_state(&self.executor.store, &mut tx, &plan, saga).await?.state),
            None => None,
        };
        self.executor.store.rollback(tx).await?;
        Ok(state)
    }

    /// Resolves a doubt: states whether the step of unknown outcome took effect. The saga then continues, or compensates
    /// the steps before it. `happened: false` also states that the step will not take effect later.
    ///
    /// # Errors
    /// When the saga is not in doubt, or the ledger or the store fails.
    pub async fn resolve_doubt(
        &self,
        saga: MessageId,
        happened: bool,
        action: &Action,
    ) -> Result<SagaState, ResolveError> {
        action.check().map_err(AuditError::from)?;
        let mut tx = self.executor.store.begin().await?;
        let Some(plan) = self.plan_of(&mut tx, saga).await? else {
            self.executor.store.rollback(tx).await?;
            return Err(ResolveError::Unknown(saga));
        };
        let log_state = read_state(&self.executor.store, &mut tx, &plan, saga).await?;
        let SagaState::InDoubt { step } = log_state.state else {
            self.executor.store.rollback(tx).await?;
            return Err(ResolveError::NotInDoubt(log_state.state));
        };
        let id = Command::perform(step).follow_up_id(saga);
        let call = self.executor.store.backend().get(&self.queue, id).await?;
        let Some(call) = call.and_then(|entry| FollowUp::read(&entry.message).ok()) else {
            self.executor.store.rollback(tx).await?;
            return Err(ResolveError::Unknown(saga));
        };
        let events = [AuditEvent {
            actor: Some(action.actor.clone()),
            step: Some(step),
            ..event(AuditKind::Resolved, &call, id)
        }];
        self.executor.audit.append_before(&events).await?;
        let entry = LogEntry::Resolved { step, happened };
        let state = advance(&self.executor.store, &mut tx, &plan, saga, &log_state, &entry, &call).await?;
        let concluded = self.executor.conclude(tx, state, &plan, saga, &call).await;
        let (mut tx, new) =
            concluded.map_err(|failure| ResolveError::CompletionFailed(failure.kind().to_owned()))?;
        self.executor.audit.append_within(&self.executor.store, &mut tx, &events, &new).await?;
        self.executor.store.commit(tx).await?;
        // The call has ended. Should this fail, it stays among the abandoned follow-ups, and an operator can discard
        // it.
        self.executor.store.backend().discard(&self.queue, &[id], action).await?;
        Ok(state.unwrap_or(log_state.state))
    }

    async fn plan_of(&self, tx: &mut S::Tx, saga: MessageId) -> Result<Option<Plan>, Error> {
        let log = self.executor.store.read_log(tx, saga).await?;
        Ok(match log.first() {
            Some(LogEntry::Begun { plan, .. }) => self.executor.plans.get(plan).cloned(),
            _ => None,
        })
    }
}
