//! Message ids and lease tokens.

use crate::Invalid;
use serde::{Deserialize, Serialize};
use std::{
    fmt,
    str::FromStr,
    time::{Duration, SystemTime},
};
use uuid::Uuid;

/// The id of a message: the idempotency key on every wire.
///
/// Prefer a UUIDv7: its time order keeps indexes compact, where a random id costs several times as much.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MessageId(Uuid);

impl MessageId {
    /// A new UUIDv7 for the time `now`.
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

    /// An id from elsewhere.
    pub const fn from_uuid(uuid: Uuid) -> Self {
        Self(uuid)
    }

    /// The id as a UUID.
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

/// A fencing token: every claim makes a new one, and every write that settles or extends the claim carries it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseToken(Uuid);

impl LeaseToken {
    /// A new unique token.
    pub fn fresh() -> Self {
        Self(Uuid::new_v4())
    }

    /// A token from a store.
    pub const fn from_uuid(uuid: Uuid) -> Self {
        Self(uuid)
    }

    /// The token as a UUID.
    pub const fn as_uuid(&self) -> Uuid {
        self.0
    }
}
