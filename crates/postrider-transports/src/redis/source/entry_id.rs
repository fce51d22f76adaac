//! The id of a stream entry.

use std::{fmt, str::FromStr};

/// Such as `1784021400123-0`: milliseconds, and a sequence number within that millisecond.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct EntryId(u64, u64);

impl FromStr for EntryId {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (milliseconds, sequence) = text.split_once('-').ok_or(())?;
        Ok(Self(milliseconds.parse().map_err(drop)?, sequence.parse().map_err(drop)?))
    }
}

impl fmt::Display for EntryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.0, self.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entry_id_round_trips_and_rejects_malformed_text() {
        let id: EntryId = "1784021400123-7".parse().unwrap();
        assert_eq!(id.to_string(), "1784021400123-7");
        assert!("1784021400123-10".parse::<EntryId>().unwrap() > id);
        for wrong in ["", "-", "1", "1-", "a-1", "1-2-3"] {
            assert!(wrong.parse::<EntryId>().is_err(), "{wrong}");
        }
    }
}
