//! Who carries follow-ups out.

use crate::failure::Failure;
use async_trait::async_trait;
use postrider_core::{
    EventType, FollowUp, Invalid, MessageId, Reference, ResolverName, SubjectId, TenantId,
    saga::{self, Act, Command, Part, Plan},
};
use std::{collections::BTreeMap, fmt, sync::Arc, time::SystemTime};

/// Carries out calls to somebody else: a payment provider, a mail service, an object store.
///
/// A call may be made more often than once, always under the same [idempotency key](Call::idempotency_key): give it to the other side if
/// it takes one, and make sure that the second call changes nothing if it does not. Who finds that there is nothing left to do has
/// succeeded.
///
/// `?` turns any error into one that is tried again. [`Failure::reject`] says that trying again is of no use: the follow-up is given
/// up at once. Of an error nothing is kept but the name of its type.
///
/// ```
/// # use postrider_engine::{Failure, saga::{Call, Resolved, Resolver}};
/// # struct Payments;
/// # impl Payments { async fn delete(&self, customer: &str, key: String) -> Result<u16, std::io::Error> { Ok(204) } }
/// #[async_trait::async_trait]
/// impl Resolver for Payments {
///     fn name(&self) -> &str {
///         "payments"
///     }
///
///     fn operations(&self) -> &[&str] {
///         &["erase"]
///     }
///
///     async fn resolve(&self, call: &Call) -> Result<Resolved, Failure> {
///         match self.delete(call.reference().value(), call.idempotency_key().to_string()).await? {
///             200..300 => Ok(Resolved::Done),
///             404 | 410 => Ok(Resolved::AlreadyGone),
///             401 | 403 => Err(Failure::reject("the key is not allowed to").named("NotAllowed")),
///             status => Err(Failure::retry(format!("status {status}")).named("BadStatus")),
///         }
///     }
/// }
/// ```
#[async_trait]
pub trait Resolver: Send + Sync + 'static {
    /// By which follow-ups call for it.
    fn name(&self) -> &str;

    /// What it can do. A follow-up that asks for something else is given up at once.
    fn operations(&self) -> &[&str];

    /// Whether it can do this: one of its [`operations`](Self::operations), unless it knows better, as one does that was told at run time.
    fn can(&self, operation: &str) -> bool {
        self.operations().contains(&operation)
    }

    /// Carries out one call.
    async fn resolve(&self, call: &Call) -> Result<Resolved, Failure>;

    /// Whether a call has had its effect, and if not, never will. Asked for steps of a saga whose outcome is in doubt: after the last
    /// attempt, and when a call is refused that may have got through before. `None` where nobody can tell: then the saga waits for
    /// somebody who can.
    async fn has_happened(&self, call: &Call) -> Result<Option<bool>, Failure> {
        let _ = call;
        Ok(None)
    }
}

/// How a call ended well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resolved {
    /// It was done.
    Done,
    /// There was nothing left to do.
    AlreadyGone,
    /// It must not be done before this time, such as the end of a retention period. The follow-up waits until then, and is asked about
    /// again. If that has passed already, it waits as long as after a first failure.
    NotBefore(SystemTime),
}

/// One call that is to be made.
#[derive(Debug, Clone)]
pub struct Call {
    pub(super) follow_up: FollowUp,
    pub(super) key: MessageId,
    pub(super) attempt: u32,
}

impl Call {
    /// The same whenever this call is made: the other side can tell by it that it was made before.
    pub fn idempotency_key(&self) -> MessageId {
        self.key
    }

    /// Which attempt this is, from 1. Attempts that a crash cut short count.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// Whom it is about.
    pub fn subject(&self) -> &SubjectId {
        self.follow_up.subject()
    }

    /// Whose subject that is.
    pub fn tenant(&self) -> Option<&TenantId> {
        self.follow_up.tenant()
    }

    /// What is to be done.
    pub fn operation(&self) -> &EventType {
        self.follow_up.operation()
    }

    /// What the other side knows the subject by.
    pub fn reference(&self) -> &Reference {
        self.follow_up.reference()
    }

    /// Which part of a saga it is.
    pub fn part(&self) -> Option<&Part> {
        self.follow_up.part()
    }

    /// The idempotency key of the call that this one undoes, if it undoes one.
    pub fn undoes(&self) -> Option<MessageId> {
        let part = self.part().filter(|part| part.command.act == Act::Undo)?;
        Some(Command::perform(part.command.step).follow_up_id(part.saga))
    }

    /// What is needed besides.
    pub fn payload(&self) -> Option<&[u8]> {
        self.follow_up.payload().map(AsRef::as_ref)
    }

    /// What is needed besides, read as JSON.
    ///
    /// # Errors
    /// When there is nothing, or it cannot be read so: trying again is of no use.
    pub fn json<T: serde::de::DeserializeOwned>(&self) -> Result<T, Failure> {
        serde_json::from_slice(self.payload().unwrap_or_default()).map_err(Failure::reject)
    }
}

/// The resolvers of a runner, by name.
#[derive(Clone, Default)]
pub(super) struct Registry(BTreeMap<ResolverName, Arc<dyn Resolver>>);

impl Registry {
    pub(super) fn register(&mut self, resolver: Arc<dyn Resolver>) -> Result<(), Invalid> {
        let name = ResolverName::new(resolver.name())?;
        if name.as_str() == saga::RESOLVER {
            return Err(Invalid::rule("resolver", format!("{name} begins sagas; choose another name")));
        }
        for operation in resolver.operations() {
            EventType::new(*operation).map_err(|invalid| {
                Invalid::rule(
                    format!("resolver {name}"),
                    format!("has an operation that cannot be: {invalid}"),
                )
            })?;
        }
        if self.0.contains_key(&name) {
            let rule = format!("{name} is there twice; each needs a name of its own");
            return Err(Invalid::rule("resolver", rule));
        }
        self.0.insert(name, resolver);
        Ok(())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether there is somebody for every call of a plan.
    pub(super) fn check(&self, plan: &Plan) -> Result<(), Invalid> {
        let commands = (0..plan.len()).flat_map(|step| [Command::perform(step), Command::undo(step)]);
        for (resolver, operation) in commands.filter_map(|command| plan.call(command)) {
            let known = self.0.get(resolver);
            if !known.is_some_and(|known| known.can(operation.as_str())) {
                let rule = format!("nobody is there to {operation} at {resolver}: give it with `resolver`");
                return Err(Invalid::rule(format!("plan {:?}", plan.name()), rule));
            }
        }
        Ok(())
    }

    /// Who carries out a follow-up; or the kind of error if nobody does.
    pub(super) fn find(&self, follow_up: &FollowUp) -> Result<&Arc<dyn Resolver>, &'static str> {
        let resolver = self.0.get(follow_up.resolver()).ok_or("UnknownResolver")?;
        resolver.can(follow_up.operation().as_str()).then_some(resolver).ok_or("UnsupportedOperation")
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}
