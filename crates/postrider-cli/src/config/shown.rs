//! The text of the file as it may be shown: only what cannot be a secret.

use super::table::is_variable;
use std::ops::Range;
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

/// Texts under these keys name things. Any other may hold a password, were it only for a slip of the finger in its key.
const NAMES: [&str; 28] = [
    "address",
    "database",
    "destination",
    "durable",
    "first",
    "format",
    "give_up_after",
    "group",
    "instance",
    "jitter",
    "keep_for",
    "kind",
    "listen",
    "longest",
    "name",
    "operations",
    "ordered",
    "queue",
    "region",
    "resolver",
    "sasl",
    "schedule",
    "source",
    "stream",
    "subject",
    "timeout",
    "topic",
    "types",
];

/// The same text with stars for everything that may be secret. Whatever stood somewhere still stands there.
pub(crate) fn shown(text: &str, content: &DeTable<'_>) -> String {
    let mut hidden = Vec::new();
    in_table(content, &mut hidden);
    let hide = |(place, c): (usize, char)| {
        let is_hidden = c != '\n' && hidden.iter().any(|span: &Range<usize>| span.contains(&place));
        if is_hidden { "*".repeat(c.len_utf8()) } else { c.to_string() }
    };
    text.char_indices().map(hide).collect()
}

fn in_table(table: &DeTable<'_>, hidden: &mut Vec<Range<usize>>) {
    for (key, value) in table {
        in_value(key.get_ref(), value, hidden);
    }
}

fn in_value(key: &str, value: &Spanned<DeValue<'_>>, hidden: &mut Vec<Range<usize>>) {
    match value.get_ref() {
        DeValue::Table(table) => in_table(table, hidden),
        DeValue::Array(list) => list.iter().for_each(|each| in_value(key, each, hidden)),
        DeValue::Boolean(_) => {}
        // These say where something is that is not shown itself.
        DeValue::String(name) if key.ends_with("_env") && is_variable(name) => {}
        _ if key.ends_with("_file") || NAMES.contains(&key) => {}
        _ => hidden.push(value.span()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_be_secret_is_stars_and_nothing_moves() {
        let text = "source = \"/shop\"\n[databases.shop]\nurl = \"postgres://nell:clöver@db/shop\"\npasword = 123456\n\
                    url_env = \"SHOP_DB\"\nlisten_url_env = \"postgres://db\"\nurl_file = \"/run/db\"\n\
                    [[routes]]\nto = [{ adress = \"x\", destination = \"events\" }]\n";
        let content = DeTable::parse(text).unwrap();
        let shown = shown(text, content.get_ref());
        assert_eq!(shown.len(), text.len());
        let stars = |length: usize| "*".repeat(length);
        let expected = format!(
            "source = \"/shop\"\n[databases.shop]\nurl = {}\npasword = {}\n\
             url_env = \"SHOP_DB\"\nlisten_url_env = {}\nurl_file = \"/run/db\"\n\
             [[routes]]\nto = [{{ adress = {}, destination = \"events\" }}]\n",
            stars("\"postgres://nell:clöver@db/shop\"".len()),
            stars(6),
            stars("\"postgres://db\"".len()),
            stars(3),
        );
        assert_eq!(shown, expected);
    }
}
