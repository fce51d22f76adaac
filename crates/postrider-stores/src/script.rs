//! Splits SQL scripts into statements, and lists into items.

/// The statements of a script, without the comments before them and the semicolons after them.
pub(crate) fn statements(script: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut rest = skip_blank(script);
    while !rest.is_empty() {
        let end = end(rest);
        found.push(rest[..end].trim_end());
        rest = skip_blank(rest.get(end + 1..).unwrap_or_default());
    }
    found
}

/// Skips white space and comments.
fn skip_blank(text: &str) -> &str {
    let mut text = text.trim_start();
    while text.starts_with("--") {
        text = text.split_once('\n').map_or("", |(_, rest)| rest).trim_start();
    }
    text
}

/// The end of the first statement: its semicolon, or the end of the text. A trigger of SQLite contains semicolons of its own, and
/// ends after an `end` on its own.
fn end(text: &str) -> usize {
    let is_trigger_body =
        text.starts_with("create trigger") && !text[..line_with(text, ';')].contains("execute");
    let (mut at, mut after_stop) = (0, 0);
    while let Some(sign) = text[at..].chars().next() {
        let rest = &text[at..];
        at += match sign {
            '-' if rest.starts_with("--") => rest.find('\n').unwrap_or(rest.len()),
            '\'' | '"' => 1 + rest[1..].find(sign).map_or(rest.len() - 1, |close| close + 1),
            '$' => match tag(rest) {
                Some(tag) => rest[tag.len()..].find(tag).map_or(rest.len(), |close| close + 2 * tag.len()),
                None => 1,
            },
            ';' if !is_trigger_body || skip_blank(&text[after_stop..at]).trim() == "end" => return at,
            ';' => {
                after_stop = at + 1;
                1
            }
            sign => sign.len_utf8(),
        };
    }
    text.len()
}

fn line_with(text: &str, sign: char) -> usize {
    text.find(sign).unwrap_or(text.len())
}

/// `$$` or `$name$` at the beginning.
fn tag(text: &str) -> Option<&str> {
    let close = text[1..].find('$')? + 1;
    let is_name = text[1..close].bytes().all(|b| b.is_ascii_alphabetic() || b == b'_');
    is_name.then(|| &text[..=close])
}

/// The items of the list between the first parenthesis and its partner, without comments, each in one line.
pub(crate) fn items(statement: &str) -> Vec<String> {
    let Some(open) = statement.find('(') else { return Vec::new() };
    let without_comments: Vec<_> =
        statement[open..].lines().map(|line| line.split_once("--").map_or(line, |(code, _)| code)).collect();
    let (mut items, mut item, mut depth) = (Vec::new(), String::new(), 0_u32);
    for sign in without_comments.join(" ").chars() {
        match sign {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        match (sign, depth) {
            ('(', 1) => continue,
            (')', 0) => break,
            (',', 1) => items.push(std::mem::take(&mut item)),
            (sign, _) => item.push(sign),
        }
    }
    items.push(item);
    items.iter().map(|item| item.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_keeps_quotes_comments_and_trigger_bodies_whole() {
        let script = "-- one; two\ncreate table a (b text default ';', -- c; d\n c int);\n\
            create function f() as $x$ begin; end; $x$;\ninsert into a values ('it''s; $1');\n\
            create trigger t before insert on a begin\n  select case when 1 then 2 end;\n  select 3;\nend;\n\
            create trigger u before insert on a execute function f();\nselect 1";
        let found = statements(script);
        assert_eq!(found.len(), 6, "{found:#?}");
        assert!(found[0].starts_with("create table a") && found[0].ends_with("c int)"), "{found:#?}");
        assert!(found[3].ends_with("select 3;\nend"), "{found:#?}");
        assert_eq!(found[5], "select 1");
    }

    #[test]
    fn items_splits_at_commas_outside_parentheses() {
        let table =
            "create table a (\n  -- why, indeed\n  b numeric(3, 2) not null,\n  c text -- (\n) strict";
        assert_eq!(items(table), ["b numeric(3, 2) not null", "c text"]);
    }
}
