//! The identity of a message and the token of a lease.

use crate::Invalid;
use serde::{Deserialize, Serialize};
use std::{
    fmt,
    str::FromStr,
    time::{Duration, SystemTime},
};
use uuid::Uuid;

/// The identity of a message: the idempotency key on every wire.
///
/// Prefer a UUIDv7: its time order keeps indexes compact, where a random id costs several times as much.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MessageId(Uuid);

impl MessageId {
    /// A fresh UUIDv7 of the moment `now`.
    ///
    /// ```
    /// # use postrider_core::MessageId;
    /// let id = MessageId::at(std::time::SystemTime::now());
    /// assert_eq!(id.to_string().parse::<MessageId>()?, id);
    /// # Ok::<(), postrider_core::Invalid>(())
    /// ```
    pub fn at(now: SystemTime) -> Self {
        let since = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
        Self(Uuid::new_v7(uuid::Timestamp::from_unix(uuid::NoContext, since.as_secs(), since.subsec_nanos())))
    }

    /// An identity that came from elsewhere.
    pub const fn from_uuid(uuid: Uuid) -> Self {
        Self(uuid)
    }

    /// The identity as a UUID.
    pub const fn as_uuid(&self) -> Uuid {
        self.0
    }
}

impl fmt::Display for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl FromStr for MessageId {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        Uuid::try_parse(text).map(Self).map_err(|_| {
            Invalid::rule(
                "id",
                format!("{text:?} is not a UUID such as 01890a5d-ac96-774b-bcce-b302099a8057"),
            )
        })
    }
}

/// Proof of ownership: made anew by every claim, asked for by every write that ends or extends it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseToken(Uuid);

impl LeaseToken {
    /// A token that nobody else has.
    pub fn fresh() -> Self {
        Self(Uuid::new_v4())
    }

    /// A token as a store keeps it.
    pub const fn from_uuid(uuid: Uuid) -> Self {
        Self(uuid)
    }

    /// The token as a UUID.
    pub const fn as_uuid(&self) -> Uuid {
        self.0
    }
}
