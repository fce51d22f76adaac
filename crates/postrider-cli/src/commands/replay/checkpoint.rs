//! The position at which a replay was interrupted.

use postrider::inspect::Cursor;
use std::{
    fmt,
    str::FromStr,
    time::{Duration, SystemTime},
};

/// The last message that was replayed: its delivery time and its position in the queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Checkpoint {
    micros: u64,
    position: i64,
}

impl Checkpoint {
    pub(super) fn of(cursor: &Cursor) -> Option<Self> {
        let since = cursor.at?.duration_since(SystemTime::UNIX_EPOCH).ok()?;
        // Rounded up as the stores do, so that a message at the checkpoint is not beyond it.
        let micros = u64::try_from(since.as_nanos().div_ceil(1000)).ok()?;
        Some(Self { micros, position: cursor.position })
    }

    pub(super) fn at(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_micros(self.micros)
    }

    pub(super) fn cursor(&self) -> Cursor {
        Cursor { at: Some(self.at()), position: self.position }
    }
}

impl fmt::Display for Checkpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.micros, self.position)
    }
}

impl FromStr for Checkpoint {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split_once('-').and_then(|(micros, position)| {
            // Before the year 10000.
            let micros = micros.parse().ok().filter(|micros| *micros < 253_402_300_800_000_000)?;
            Some(Self { micros, position: position.parse().ok()? })
        });
        parts.ok_or_else(|| {
            format!("{text:?} is not a checkpoint; give the one that the replay printed, such as 1760443200000000-17")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checkpoint_parses_as_printed() {
        let at = SystemTime::UNIX_EPOCH + Duration::from_micros(1_760_443_200_123_456);
        let checkpoint = Checkpoint::of(&Cursor { at: Some(at), position: 17 }).unwrap();
        assert_eq!(checkpoint.to_string().parse(), Ok(checkpoint.clone()));
        assert_eq!(checkpoint.cursor(), Cursor { at: Some(at), position: 17 });
        for text in ["", "17", "x-1", "1-x", "99999999999999999999-1"] {
            assert!(text.parse::<Checkpoint>().is_err_and(|help| help.contains("give the one")), "{text}");
        }
    }
}
