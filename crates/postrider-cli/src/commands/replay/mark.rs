//! Where a replay was interrupted.

use postrider::inspect::Cursor;
use std::{
    fmt,
    str::FromStr,
    time::{Duration, SystemTime},
};

/// The last message that was replayed, by when it was delivered and its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mark {
    micros: u64,
    place: i64,
}

impl Mark {
    pub(super) fn of(cursor: &Cursor) -> Option<Self> {
        let since = cursor.at?.duration_since(SystemTime::UNIX_EPOCH).ok()?;
        // Rounded up as the stores do, so that what is at the mark is not beyond it.
        let micros = u64::try_from(since.as_nanos().div_ceil(1000)).ok()?;
        Some(Self { micros, place: cursor.place })
    }

    pub(super) fn at(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_micros(self.micros)
    }

    pub(super) fn cursor(&self) -> Cursor {
        Cursor { at: Some(self.at()), place: self.place }
    }
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.micros, self.place)
    }
}

impl FromStr for Mark {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split_once('-').and_then(|(micros, place)| {
            // Within the years that people count.
            let micros = micros.parse().ok().filter(|micros| *micros < 253_402_300_800_000_000)?;
            Some(Self { micros, place: place.parse().ok()? })
        });
        parts.ok_or_else(|| {
            format!("{text:?} is no mark; give the one that was printed, such as 1760443200000000-17")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_read_as_it_was_printed() {
        let at = SystemTime::UNIX_EPOCH + Duration::from_micros(1_760_443_200_123_456);
        let mark = Mark::of(&Cursor { at: Some(at), place: 17 }).unwrap();
        assert_eq!(mark.to_string().parse(), Ok(mark.clone()));
        assert_eq!(mark.cursor(), Cursor { at: Some(at), place: 17 });
        for text in ["", "17", "x-1", "1-x", "99999999999999999999-1"] {
            assert!(text.parse::<Mark>().is_err_and(|help| help.contains("give the one")), "{text}");
        }
    }
}
