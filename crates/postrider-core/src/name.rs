//! Newtypes for the names that must not be confused. Each is checked when it is made, and cheap to clone.

use crate::{
    Invalid, Text,
    limits::{self, Charset},
};
use serde::{Deserialize, Serialize};
use std::{borrow::Borrow, fmt, str::FromStr, sync::Arc};

macro_rules! names {
    ($($(#[$doc:meta])* $name:ident, $field:literal, $charset:expr;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String")]
        pub struct $name(Arc<str>);

        impl $name {
            /// Checks the name and makes it.
            ///
            /// # Errors
            /// When it is empty, longer than 255 bytes, or holds a character that it must not.
            pub fn new(value: impl Into<Arc<str>>) -> Result<Self, Invalid> {
                let value = value.into();
                limits::name($field, $charset, &value)?;
                Ok(Self(value))
            }

            /// A name as a store kept it. It was checked when it was staged, or came in through plain SQL: either way it
            /// must not keep the message from being read.
            pub fn stored(value: impl Into<Arc<str>>) -> Self {
                Self(value.into())
            }

            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.0, f)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl From<&$name> for Text {
            fn from(name: &$name) -> Self {
                Arc::clone(&name.0).into()
            }
        }

        impl FromStr for $name {
            type Err = Invalid;
            fn from_str(value: &str) -> Result<Self, Invalid> {
                Self::new(value)
            }
        }

        impl TryFrom<String> for $name {
            type Error = Invalid;
            fn try_from(value: String) -> Result<Self, Invalid> {
                Self::new(value)
            }
        }

        impl TryFrom<&str> for $name {
            type Error = Invalid;
            fn try_from(value: &str) -> Result<Self, Invalid> {
                Self::new(value)
            }
        }
    )*};
}

names! {
    /// Where a message waits: a name that producers and workers agree on.
    QueueName, "queue", Charset::Word;
    /// Messages of one key are delivered one at a time and in order, on queues that are ordered by key.
    OrderingKey, "key", Charset::Line;
    /// The name of a timer, unique in its queue while the timer lives.
    TimerName, "timer", Charset::Line;
    /// Whom or what a message is about.
    SubjectId, "subject", Charset::Line;
    /// The tenant a message belongs to.
    TenantId, "tenant", Charset::Line;
    /// What happened: the type of the event that a message carries.
    EventType, "type", Charset::Word;
    /// A schedule of recurring messages: processes that use the same name share its ticks.
    ScheduleName, "schedule", Charset::Word;
    /// Who carries out follow-ups of a kind: a provider, a service, a place where something is kept.
    ResolverName, "resolver", Charset::Word;
    /// Who reads on the far side; part of the inbox's key.
    ConsumerName, "consumer", Charset::Word;
    /// Where a relay sends to: the name that its routes have for it.
    DestinationName, "destination", Charset::Word;
}
