//! Where an entry is in its stream.

use std::{fmt, str::FromStr};

/// Such as `1784021400123-0`: milliseconds, and a number among those of one millisecond.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Place(u64, u64);

impl FromStr for Place {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (milliseconds, number) = text.split_once('-').ok_or(())?;
        Ok(Self(milliseconds.parse().map_err(drop)?, number.parse().map_err(drop)?))
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.0, self.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_read_and_written() {
        let place: Place = "1784021400123-7".parse().unwrap();
        assert_eq!(place.to_string(), "1784021400123-7");
        assert!("1784021400123-10".parse::<Place>().unwrap() > place);
        for wrong in ["", "-", "1", "1-", "a-1", "1-2-3"] {
            assert!(wrong.parse::<Place>().is_err(), "{wrong}");
        }
    }
}
