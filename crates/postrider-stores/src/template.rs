//! SQL templates: the one way in which the stores compose SQL text.
//!
//! A template is SQL with placeholders, and each is one word in braces. `{ready}` stands for an object of the schema, under its name in
//! this store; `names.rs` of each store lists them and fills them in. Every other placeholder stands for a *piece* of SQL: a
//! template itself, or a number. The macro `sql!` fills these in. It checks each template when it is compiled: a placeholder without
//! a piece does not compile, and neither does a piece without a placeholder. No text from outside this crate becomes a part of a template:
//! values are bound.

use std::{
    borrow::Cow,
    fmt::{self, Write},
};

/// SQL whose only placeholders are those of objects. Made by the macro `sql!`.
#[derive(Debug, Clone)]
pub(crate) struct Template(Cow<'static, str>);

/// The names of objects and, after a semicolon, those that are written with a `#`.
macro_rules! objects {
    ($($name:ident)* $(; $($bare:ident)*)?) => { &[$(stringify!($name),)* $($(concat!("#", stringify!($bare)),)*)?] };
}

/// `template!(OBJECTS; "select … {from} …", from = …)`: a template of a store with these objects. A piece that is a variable of the same
/// name needs no value.
macro_rules! template {
    (@piece $name:ident) => { $name };
    (@piece $name:ident $piece:expr) => { $piece };
    ($objects:expr; $text:expr $(, $name:ident $(= $piece:expr)?)* $(,)?) => {{
        const TEXT: &str = $text;
        const _: () = assert!(
            $crate::template::fits(TEXT, &[$(stringify!($name)),*], $objects),
            "each placeholder needs a piece, unless it is an object, and each piece a placeholder"
        );
        $crate::template::Template::checked(TEXT, &[$((stringify!($name), &template!(@piece $name $($piece)?))),*])
    }};
}

impl Template {
    /// For the macro, which has checked that the pieces are those of the text.
    pub(crate) fn checked(text: &'static str, pieces: &[(&str, &dyn Piece)]) -> Self {
        if pieces.is_empty() {
            return Self(Cow::Borrowed(text));
        }
        Self(Cow::Owned(render(text, |sql, name| {
            // Writing to a string does not fail.
            let _ = match pieces.iter().find(|(piece, _)| *piece == name) {
                Some((_, piece)) => write!(sql, "{piece}"),
                None => write!(sql, "{{{name}}}"),
            };
        })))
    }

    /// A part of the migrations, or a name in them. Only for text of this crate.
    pub(crate) fn of_schema(text: impl Into<String>) -> Self {
        Self(Cow::Owned(text.into()))
    }

    /// The placeholder of the object with this name in the schema.
    pub(crate) fn of_object(name: &str) -> Self {
        Self::of_schema(format!("{{{name}}}"))
    }

    pub(crate) fn join(parts: impl IntoIterator<Item = Self>, separator: &str) -> Self {
        let parts: Vec<_> = parts.into_iter().map(|part| part.0).collect();
        Self(Cow::Owned(parts.join(separator)))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

/// A value of a placeholder: no text but that of a template.
pub(crate) trait Piece: fmt::Display {}

impl Piece for Template {}
impl<P: Piece + ?Sized> Piece for &P {}
impl Piece for usize {}
impl Piece for u32 {}
impl Piece for u64 {}

impl fmt::Display for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The text with its placeholders replaced: `fill` adds the value of one. Other braces remain.
pub(crate) fn render(text: &str, fill: impl Fn(&mut String, &str)) -> String {
    let (mut sql, mut from) = (String::with_capacity(text.len() + 256), 0);
    while let Some((start, end)) = placeholder(text, from) {
        sql.push_str(&text[from..start]);
        fill(&mut sql, &text[start + 1..end - 1]);
        from = end;
    }
    sql.push_str(&text[from..]);
    sql
}

/// Whether each placeholder of the text is either a piece or an object, and each piece has a placeholder.
pub(crate) const fn fits(text: &str, pieces: &[&str], objects: &[&str]) -> bool {
    let (mut from, mut used) = (0, 0_u32);
    while let Some((start, end)) = placeholder(text, from) {
        match (find(text, start, end, pieces), find(text, start, end, objects)) {
            (Some(piece), None) => used |= 1 << piece,
            (None, Some(_)) => {}
            (Some(_), Some(_)) | (None, None) => return false,
        }
        from = end;
    }
    used == (1 << pieces.len()) - 1
}

/// The next placeholder `{name}` or `{#name}`, braces included: where it starts and ends.
const fn placeholder(text: &str, from: usize) -> Option<(usize, usize)> {
    let (text, mut start) = (text.as_bytes(), from);
    while start < text.len() {
        if text[start] == b'{' {
            let first = if start + 1 < text.len() && text[start + 1] == b'#' { start + 2 } else { start + 1 };
            let mut end = first;
            while end < text.len() && (text[end].is_ascii_lowercase() || text[end] == b'_') {
                end += 1;
            }
            if end > first && end < text.len() && text[end] == b'}' {
                return Some((start, end + 1));
            }
        }
        start += 1;
    }
    None
}

/// The index of the placeholder's name. A constant cannot compare strings.
const fn find(text: &str, start: usize, end: usize, names: &[&str]) -> Option<usize> {
    let (text, mut index) = (text.as_bytes(), 0);
    while index < names.len() {
        let (name, mut at) = (names[index].as_bytes(), 0);
        while at < name.len() && name[at] == text[start + 1 + at] {
            at += 1;
        }
        if at == name.len() && start + at + 2 == end {
            return Some(index);
        }
        index += 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const OBJECTS: &[&str] = &["ready", "#ready"];

    #[test]
    fn pieces_replace_their_placeholders_and_other_braces_remain() {
        let limit = template!(OBJECTS; "${number}::int", number = 2_usize);
        let rows = template!(OBJECTS; "'{}', {Not} {ready} {#ready} limit {limit}, {limit}", limit);
        assert_eq!(rows.as_str(), "'{}', {Not} {ready} {#ready} limit $2::int, $2::int");
        assert_eq!(Template::join([limit.clone(), limit], ", ").as_str(), "$2::int, $2::int");
    }

    #[test]
    fn text_fits_its_pieces_and_objects_only() {
        assert!(fits("{limit} {ready} { {} {Not} {#ready} {limit}", &["limit"], OBJECTS));
        for text in [
            "{limit} {limits}",
            "{limit} {limi}",
            "{limit} {#limit}",
            "{limit} {ready_key}",
            "{ready}",
            "{limit",
        ] {
            assert!(!fits(text, &["limit"], OBJECTS), "{text:?}");
        }
        assert!(fits("{b} {a}", &["a", "b"], OBJECTS) && !fits("{b}", &["a", "b"], OBJECTS));
        assert!(!fits("{ready}", &["ready"], OBJECTS), "a piece with the name of an object");
    }
}
