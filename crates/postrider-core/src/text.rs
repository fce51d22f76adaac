//! Shared text.

use std::{fmt, ops::Deref, sync::Arc};

/// Static or shared text: text that is the same for every message is not copied for each.
#[derive(Clone)]
pub struct Text(Kept);

#[derive(Clone)]
enum Kept {
    Fixed(&'static str),
    Shared(Arc<str>),
    Own(String),
}

impl Text {
    /// The text.
    pub fn as_str(&self) -> &str {
        match &self.0 {
            Kept::Fixed(text) => text,
            Kept::Shared(text) => text,
            Kept::Own(text) => text,
        }
    }
}

impl Deref for Text {
    type Target = str;

    fn deref(&self) -> &str {
        self.as_str()
    }
}

impl AsRef<str> for Text {
    fn as_ref(&self) -> &str {
        self
    }
}

impl From<&'static str> for Text {
    fn from(text: &'static str) -> Self {
        Self(Kept::Fixed(text))
    }
}

impl From<Arc<str>> for Text {
    fn from(text: Arc<str>) -> Self {
        Self(Kept::Shared(text))
    }
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        Self(Kept::Own(text))
    }
}

impl From<Text> for String {
    fn from(text: Text) -> Self {
        match text.0 {
            Kept::Own(text) => text,
            _ => text.as_str().to_owned(),
        }
    }
}

impl PartialEq for Text {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for Text {}

impl PartialEq<str> for Text {
    fn eq(&self, other: &str) -> bool {
        self.as_str() == other
    }
}

impl PartialEq<&str> for Text {
    fn eq(&self, other: &&str) -> bool {
        self.as_str() == *other
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn static_and_shared_text_compare_equal() {
        let all = [Text::from("blue"), Text::from(Arc::<str>::from("blue")), Text::from("blue".to_owned())];
        for text in &all {
            assert_eq!(*text, "blue");
            assert_eq!(*text, all[0]);
            assert_eq!((text.to_string(), format!("{text:?}")), ("blue".to_owned(), "\"blue\"".to_owned()));
            assert_eq!(String::from(text.clone()), "blue");
        }
    }
}
