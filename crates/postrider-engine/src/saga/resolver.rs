//! Resolvers: they make the calls of follow-ups.

use crate::failure::Failure;
use async_trait::async_trait;
use postrider_core::{
    EventType, FollowUp, Invalid, MessageId, Reference, ResolverName, SubjectId, TenantId,
    saga::{self, Command, CommandKind, Part, Plan},
};
use std::{collections::BTreeMap, fmt, sync::Arc, time::SystemTime};

/// Makes calls to an external system: a payment provider, a mail service, an object store.
///
/// A call may be made more than once, always under the same [idempotency key](ResolverCall::idempotency_key): pass it to the
/// external system if it accepts one, and make sure that a second call changes nothing if it does not. A resolver that finds
/// nothing left to do has succeeded.
///
/// `?` turns any error into one that is retried. [`Failure::reject`] says that a retry is pointless: the follow-up is abandoned
/// at once. Only the name of an error's type is stored.
///
/// ```
/// # use postrider_engine::{Failure, saga::{Resolution, Resolver, ResolverCall}};
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
///     async fn resolve(&self, call: &ResolverCall) -> Result<Resolution, Failure> {
///         match self.delete(call.reference().value(), call.idempotency_key().to_string()).await? {
///             200..300 => Ok(Resolution::Done),
///             404 | 410 => Ok(Resolution::AlreadyGone),
///             401 | 403 => Err(Failure::reject("the key is not allowed to").named("NotAllowed")),
///             status => Err(Failure::retry(format!("status {status}")).named("BadStatus")),
///         }
///     }
/// }
/// ```
#[async_trait]
pub trait Resolver: Send + Sync + 'static {
    /// The name by which follow-ups refer to it.
    fn name(&self) -> &str;

    /// The operations that it supports. A follow-up with another operation is abandoned at once.
    fn operations(&self) -> &[&str];

    /// Whether it supports an operation: one of its [`operations`](Self::operations) by default; override it when the
    /// operations are known only at run time.
    fn can(&self, operation: &str) -> bool {
        self.operations().contains(&operation)
    }

    /// Makes one call.
    async fn resolve(&self, call: &ResolverCall) -> Result<Resolution, Failure>;

    /// Whether a call took effect, and if not, never will. Asked for steps of a saga whose outcome is in doubt: after the
    /// last attempt, and when a call is rejected that may have succeeded before. `None` when that is unknown: then the saga
    /// waits for an operator.
    async fn has_happened(&self, call: &ResolverCall) -> Result<Option<bool>, Failure> {
        let _ = call;
        Ok(None)
    }
}

/// The result of a successful call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resolution {
    /// It was done.
    Done,
    /// There was nothing left to do.
    AlreadyGone,
    /// It must not be done before this time, such as the end of a retention period. The follow-up is scheduled for then,
    /// and called again. If that time has passed already, it waits as long as after a first failure.
    NotBefore(SystemTime),
}

/// One call of a resolver.
#[derive(Debug, Clone)]
pub struct ResolverCall {
    pub(super) follow_up: FollowUp,
    pub(super) key: MessageId,
    pub(super) attempt: u32,
}

impl ResolverCall {
    /// The idempotency key: the same for every attempt of this call, so that the external system can recognise a
    /// repetition.
    pub fn idempotency_key(&self) -> MessageId {
        self.key
    }

    /// The attempt number, from 1. Attempts that a crash interrupted count.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// The subject of the follow-up.
    pub fn subject(&self) -> &SubjectId {
        self.follow_up.subject()
    }

    /// The tenant of the subject.
    pub fn tenant(&self) -> Option<&TenantId> {
        self.follow_up.tenant()
    }

    /// The operation to perform.
    pub fn operation(&self) -> &EventType {
        self.follow_up.operation()
    }

    /// The external system's reference of the subject.
    pub fn reference(&self) -> &Reference {
        self.follow_up.reference()
    }

    /// The saga step that this call is part of, if any.
    pub fn part(&self) -> Option<&Part> {
        self.follow_up.part()
    }

    /// The idempotency key of the call that this one compensates, if it compensates one.
    pub fn undoes(&self) -> Option<MessageId> {
        let part = self.part().filter(|part| part.command.act == CommandKind::Undo)?;
        Some(Command::perform(part.command.step).follow_up_id(part.saga))
    }

    /// The payload of the follow-up.
    pub fn payload(&self) -> Option<&[u8]> {
        self.follow_up.payload().map(AsRef::as_ref)
    }

    /// The payload, decoded from JSON.
    ///
    /// # Errors
    /// When there is no payload, or it cannot be decoded: a retry is pointless.
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
            return Err(Invalid::rule(
                "resolver",
                format!("{name} is reserved for starting sagas: choose another name"),
            ));
        }
        for operation in resolver.operations() {
            EventType::new(*operation).map_err(|invalid| {
                Invalid::rule(format!("resolver {name}"), format!("has an invalid operation: {invalid}"))
            })?;
        }
        if self.0.contains_key(&name) {
            let rule = format!("{name} is given twice: give each resolver a name of its own");
            return Err(Invalid::rule("resolver", rule));
        }
        self.0.insert(name, resolver);
        Ok(())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Checks that every call of a plan has a resolver.
    pub(super) fn check(&self, plan: &Plan) -> Result<(), Invalid> {
        let commands = (0..plan.len()).flat_map(|step| [Command::perform(step), Command::undo(step)]);
        for (resolver, operation) in commands.filter_map(|command| plan.call(command)) {
            let known = self.0.get(resolver);
            if !known.is_some_and(|known| known.can(operation.as_str())) {
                let rule =
                    format!("no resolver {resolver} with the operation {operation}: add it with `resolver`");
                return Err(Invalid::rule(format!("plan {:?}", plan.name()), rule));
            }
        }
        Ok(())
    }

    /// The resolver of a follow-up, or the kind of error if there is none.
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
