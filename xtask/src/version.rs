//! Major versions of PostgreSQL.

use std::fmt;
use std::str::FromStr;

/// A major version of PostgreSQL that Postrider supports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Major(u32);

impl Major {
    /// The default version of the tests.
    pub(crate) const DEFAULT: Self = Self(15);
    const OLDEST: Self = Self(14);

    /// A version known when xtask is compiled.
    pub(crate) const fn known(number: u32) -> Self {
        Self(number)
    }

    /// Parses the output of `postgres --version`, such as `postgres (PostgreSQL) 15.18 (Debian …)`.
    pub(crate) fn from_banner(banner: &str) -> Option<Self> {
        let version = banner.split_whitespace().skip_while(|word| *word != "(PostgreSQL)").nth(1)?;
        // `19beta1` and `19devel` have no dot.
        let digits = version.split(|c: char| !c.is_ascii_digit()).next()?;
        digits.parse().ok().map(Self).filter(|major| *major >= Self::OLDEST)
    }
}

impl FromStr for Major {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let major = text.trim().parse().map(Self);
        let major =
            major.map_err(|_| format!("`{text}` is not a major version such as {}", Self::DEFAULT))?;
        if major < Self::OLDEST {
            return Err(format!("Postrider supports PostgreSQL {} and newer", Self::OLDEST));
        }
        Ok(major)
    }
}

impl fmt::Display for Major {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_banner_gives_its_major_version() {
        let major = |banner| Major::from_banner(banner).map(|major| major.0);
        assert_eq!(major("postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)\n"), Some(15));
        assert_eq!(major("postgres (PostgreSQL) 18.4"), Some(18));
        assert_eq!(major("postgres (PostgreSQL) 19beta1"), Some(19));
        assert_eq!(major("postgres (PostgreSQL) 20devel"), Some(20));
    }

    #[test]
    fn other_banners_give_none() {
        assert_eq!(Major::from_banner("postgres (PostgreSQL) 13.20"), None);
        assert_eq!(Major::from_banner("postgres (PostgreSQL) 9.6.24"), None);
        assert_eq!(Major::from_banner("postgres (PostgreSQL) devel"), None);
        assert_eq!(Major::from_banner("mysqld 10.11"), None);
        assert_eq!(Major::from_banner(""), None);
    }

    #[test]
    fn an_argument_is_a_supported_major_version() {
        assert_eq!("14".parse(), Ok(Major(14)));
        assert_eq!(" 18 ".parse(), Ok(Major(18)));
        assert_eq!("13".parse::<Major>(), Err("Postrider supports PostgreSQL 14 and newer".into()));
        assert_eq!("15.2".parse::<Major>(), Err("`15.2` is not a major version such as 15".into()));
        assert!("".parse::<Major>().is_err());
    }
}
