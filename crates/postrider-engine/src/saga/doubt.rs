//! Sagas that wait for somebody.

use super::{
    SagaRunner,
    books::event,
    plot::{Halted, advance, stands},
};
use postrider_core::{
    AuditError, AuditEvent, AuditKind, Error, Follow, FollowUp, MessageId,
    inspect::{Action, Inspect as _, Operate as _},
    saga::{Command, Entry, Plan, State},
};

/// Why a doubt was not resolved. Nothing changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Unresolved {
    /// No saga of this identity is under way here, of a plan that this runner knows.
    #[error("no saga {0} is under way in this queue, of a plan that this runner has")]
    Unknown(MessageId),
    /// It is in no doubt.
    #[error("the saga is not in doubt: it is {0}")]
    NoDoubt(State),
    /// The log of the saga cannot be read, or contradicts this.
    #[error("{0}")]
    Halted(String),
    /// What was to happen at the end of the saga failed, with an error of this kind.
    #[error("what is to happen when the saga ends has failed: {0}; try again")]
    NotEnded(String),
    /// The ledger or the store failed: try again.
    #[error(transparent)]
    Failed(#[from] AuditError),
}

impl From<Error> for Unresolved {
    fn from(error: Error) -> Self {
        Self::Failed(error.into())
    }
}

impl From<Halted> for Unresolved {
    fn from(halted: Halted) -> Self {
        match halted {
            Halted::Store(error) => error.into(),
            other => Self::Halted(other.to_string()),
        }
    }
}

impl<S: Follow> SagaRunner<S> {
    /// Where a saga stands, by its log. `None` if it has not begun or has ended.
    ///
    /// # Errors
    /// When its log cannot be read, or the store fails.
    pub async fn saga_state(&self, saga: MessageId) -> Result<Option<State>, Unresolved> {
        let mut tx = self.courier.store.begin().await?;
        let found = match self.plan_of(&mut tx, saga).await? {
            Some(plan) => Some(stands(&self.courier.store, &mut tx, &plan, saga).await?.state),
            None => None,
        };
        self.courier.store.rollback(tx).await?;
        Ok(found)
    }

    /// Says whether the step of which nobody knew had its effect. It goes forward then, or makes good what was done before it. Whoever says
    /// that it did not happen also says that it no longer will.
    ///
    /// # Errors
    /// When the saga is not in doubt; or the ledger or the store fails.
    pub async fn resolve_doubt(
        &self,
        saga: MessageId,
        happened: bool,
        action: &Action,
    ) -> Result<State, Unresolved> {
        action.check().map_err(AuditError::from)?;
        let mut tx = self.courier.store.begin().await?;
        let Some(plan) = self.plan_of(&mut tx, saga).await? else {
            self.courier.store.rollback(tx).await?;
            return Err(Unresolved::Unknown(saga));
        };
        let standing = stands(&self.courier.store, &mut tx, &plan, saga).await?;
        let State::InDoubt { step } = standing.state else {
            self.courier.store.rollback(tx).await?;
            return Err(Unresolved::NoDoubt(standing.state));
        };
        let id = Command::perform(step).follow_up_id(saga);
        let call = Follow::store(&self.courier.store).get(&self.queue, id).await?;
        let Some(call) = call.and_then(|entry| FollowUp::read(&entry.message).ok()) else {
            self.courier.store.rollback(tx).await?;
            return Err(Unresolved::Unknown(saga));
        };
        let told = [AuditEvent {
            actor: Some(action.actor.clone()),
            step: Some(step),
            ..event(AuditKind::Resolved, &call, id)
        }];
        self.courier.books.before(&told).await?;
        let entry = Entry::Resolved { step, happened };
        let state = advance(&self.courier.store, &mut tx, &plan, saga, &standing, &entry, &call).await?;
        let concluded = self.courier.conclude(tx, state, &plan, saga, &call).await;
        let (mut tx, new) = concluded.map_err(|failure| Unresolved::NotEnded(failure.kind().to_owned()))?;
        self.courier.books.within(&self.courier.store, &mut tx, &told, &new).await?;
        self.courier.store.commit(tx).await?;
        // The call is history now. Should this fail, it stays among what was given up, and can be discarded by hand.
        Follow::store(&self.courier.store).discard(&self.queue, &[id], action).await?;
        Ok(state.unwrap_or(standing.state))
    }

    async fn plan_of(&self, tx: &mut S::Tx, saga: MessageId) -> Result<Option<Plan>, Error> {
        let log = self.courier.store.read_log(tx, saga).await?;
        Ok(match log.first() {
            Some(Entry::Begun { plan, .. }) => self.courier.plans.get(plan).cloned(),
            _ => None,
        })
    }
}
