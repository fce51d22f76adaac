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
            /// Validates a name.
            ///
            /// # Errors
            /// When it is empty, longer than 255 bytes, or has a character that is not allowed.
            pub fn new(value: impl Into<Arc<str>>) -> Result<Self, Invalid> {
                let value = value.into();
                limits::name($field, $charset, &value)?;
                Ok(Self(value))
            }

            /// A name as a store kept it, not validated: an invalid name must not make a stored message unreadable.
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
    /// The name of a queue, on which producers and workers agree.
    QueueName, "queue", Charset::Word;
    /// An ordering key: on queues ordered by key, its messages are delivered one at a time and in order.
    OrderingKey, "key", Charset::Line;
    /// The name of a timer, unique in its queue while the timer is active.
    TimerName, "timer", Charset::Line;
    /// The subject of a message: the customer, order or other entity it is about.
    SubjectId, "subject", Charset::Line;
    /// The tenant a message belongs to.
    TenantId, "tenant", Charset::Line;
    /// The event type of a message, such as `order.placed`.
    EventType, "type", Charset::Word;
    /// The name of a cron schedule: processes that use the same name share its ticks.
    ScheduleName, "schedule", Charset::Word;
    /// The name of a resolver: the service that carries out follow-ups.
    ResolverName, "resolver", Charset::Word;
    /// The name of a consumer; part of the key of a deduplication record.
    ConsumerName, "consumer", Charset::Word;
    /// The name of a relay's destination, as routes refer to it.
    DestinationName, "destination", Charset::Word;
}
