//! The text of the configuration file without anything that may be a secret, for error messages.

use super::{renamed::RenamedKey, table::is_variable};
use std::ops::Range;
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

/// Values under these keys are never secret. Any other may be a password, if only because its key is mistyped.
const PUBLIC_KEYS: [&str; 31] = [
    "address",
    "connect_timeout",
    "database",
    "destination",
    "durable",
    "format",
    "group",
    "initial",
    "instance",
    "jitter",
    "keep_for",
    "kind",
    "listen",
    "max_delay",
    "max_total",
    "name",
    "operations",
    "ordered",
    "queue",
    "rate_limit",
    "region",
    "request_timeout",
    "resolver",
    "sasl",
    "schedule",
    "source",
    "stream",
    "subject",
    "topic",
    "trust",
    "types",
];

/// The text with everything that may be secret replaced by stars. No byte moves, so spans stay valid.
pub(crate) fn redact(text: &str, content: &DeTable<'_>) -> String {
    let mut hidden = Vec::new();
    secrets_in_table(content, &mut hidden);
    let hide = |(position, c): (usize, char)| {
        let is_hidden = c != '\n' && hidden.iter().any(|span: &Range<usize>| span.contains(&position));
        if is_hidden { "*".repeat(c.len_utf8()) } else { c.to_string() }
    };
    text.char_indices().map(hide).collect()
}

fn secrets_in_table(table: &DeTable<'_>, hidden: &mut Vec<Range<usize>>) {
    for (key, value) in table {
        secrets_in_value(key.get_ref(), value, hidden);
    }
}

fn secrets_in_value(key: &str, value: &Spanned<DeValue<'_>>, hidden: &mut Vec<Range<usize>>) {
    match value.get_ref() {
        DeValue::Table(table) => secrets_in_table(table, hidden),
        DeValue::Array(list) => list.iter().for_each(|each| secrets_in_value(key, each, hidden)),
        DeValue::Boolean(_) => {}
        // References to a secret are not secret themselves.
        DeValue::String(name) if key.ends_with("_env") && is_variable(name) => {}
        _ if key.ends_with("_file") || PUBLIC_KEYS.contains(&key) || RenamedKey::find(key).is_some() => {}
        _ => hidden.push(value.span()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redact_replaces_secrets_by_stars_and_keeps_positions() {
        let text = "source = \"/shop\"\n[databases.shop]\nurl = \"postgres://nell:clöver@db/shop\"\npasword = 123456\n\
                    url_env = \"SHOP_DB\"\nlisten_url_env = \"postgres://db\"\nurl_file = \"/run/db\"\n\
                    [[routes]]\nto = [{ adress = \"x\", destination = \"events\" }]\n";
        let content = DeTable::parse(text).unwrap();
        let redacted = redact(text, content.get_ref());
        assert_eq!(redacted.len(), text.len());
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
        assert_eq!(redacted, expected);
    }
}
