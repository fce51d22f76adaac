//! The text of the configuration file without anything that may be a secret, for error messages.

use super::{
    key_type::{Key, with_nested},
    root,
    table::is_variable,
};
use std::ops::Range;
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

/// The text with everything that may be secret replaced by stars. No byte moves, so spans stay valid.
pub(crate) fn redact(text: &str, content: &DeTable<'_>) -> String {
    let mut hidden = Vec::new();
    secrets_in_table(content, &with_nested(root::keys()), &mut hidden);
    let hide = |(position, c): (usize, char)| {
        let is_hidden = c != '\n' && hidden.iter().any(|span: &Range<usize>| span.contains(&position));
        if is_hidden { "*".repeat(c.len_utf8()) } else { c.to_string() }
    };
    text.char_indices().map(hide).collect()
}

fn secrets_in_table(table: &DeTable<'_>, keys: &[Key], hidden: &mut Vec<Range<usize>>) {
    for (key, value) in table {
        secrets_in_value(key.get_ref(), value, keys, hidden);
    }
}

fn secrets_in_value(name: &str, value: &Spanned<DeValue<'_>>, keys: &[Key], hidden: &mut Vec<Range<usize>>) {
    match value.get_ref() {
        DeValue::Table(table) => secrets_in_table(table, keys, hidden),
        DeValue::Array(list) => list.iter().for_each(|each| secrets_in_value(name, each, keys, hidden)),
        DeValue::Boolean(_) => {}
        // References to a secret are not secret themselves.
        DeValue::String(variable) if name.ends_with("_env") && is_variable(variable) => {}
        _ if name.ends_with("_file") || is_public(name, keys) => {}
        _ => hidden.push(value.span()),
    }
}

/// Whether values under this name are never secret. An unknown name may be that of a mistyped password.
fn is_public(name: &str, keys: &[Key]) -> bool {
    let mut named = keys.iter().filter(|key| key.name == name || key.old_name == Some(name)).peekable();
    named.peek().is_some() && named.all(|key| !key.is_secret())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redact_replaces_secrets_by_stars_and_keeps_positions() {
        let text = "source = \"/shop\"\n[databases.shop]\nurl = \"postgres://nell:clöver@db/shop\"\npasword = 123456\n\
                    url_env = \"SHOP_DB\"\nlisten_url_env = \"postgres://db\"\nurl_file = \"/run/db\"\n\
                    [[routes]]\nto = [{ adress = \"x\", destination = \"events\" }]\nconcurrency = 0\n";
        let content = DeTable::parse(text).unwrap();
        let redacted = redact(text, content.get_ref());
        assert_eq!(redacted.len(), text.len());
        let stars = |length: usize| "*".repeat(length);
        let expected = format!(
            "source = \"/shop\"\n[databases.shop]\nurl = {}\npasword = {}\n\
             url_env = \"SHOP_DB\"\nlisten_url_env = {}\nurl_file = \"/run/db\"\n\
             [[routes]]\nto = [{{ adress = {}, destination = \"events\" }}]\nconcurrency = 0\n",
            stars("\"postgres://nell:clöver@db/shop\"".len()),
            stars(6),
            stars("\"postgres://db\"".len()),
            stars(3),
        );
        assert_eq!(redacted, expected);
    }
}
