//! Destination addresses with placeholders.

use crate::{Invalid, Message};
use std::fmt;

/// An address with placeholders: `orders.{type}`, `{tenant}.events`. It is parsed once at start, so that a mistake is an error then
/// and not with some later message.
///
/// The placeholders are `{queue}`, `{type}`, `{key}` and `{tenant}`. A default follows a bar: `{tenant|none}`. Without a default, a
/// message that lacks the value is rejected. `{{` and `}}` stand for braces.
///
/// ```
/// # use postrider_core::{Message, Template};
/// let template = Template::parse("{tenant|none}.{type}")?;
/// let message = Message::builder("orders").event_type("order.placed").build()?;
/// assert_eq!(template.render(&message)?, "none.order.placed");
///
/// let error = Template::parse("orders.{topic}").unwrap_err();
/// assert_eq!(error.to_string(), "template: \"{topic}\" is not a placeholder; use {queue}, {type}, {key} or {tenant}");
/// # Ok::<(), postrider_core::Invalid>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    text: String,
    parts: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Text(String),
    Placeholder { placeholder: Placeholder, default: Option<String> },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Placeholder {
    Queue,
    Type,
    Key,
    Tenant,
}

impl Placeholder {
    fn named(name: &str) -> Option<Self> {
        Some(match name {
            "queue" => Self::Queue,
            "type" => Self::Type,
            "key" => Self::Key,
            "tenant" => Self::Tenant,
            _ => return None,
        })
    }

    fn name(self) -> &'static str {
        match self {
            Self::Queue => "queue",
            Self::Type => "type",
            Self::Key => "key",
            Self::Tenant => "tenant",
        }
    }

    fn value(self, message: &Message) -> Option<&str> {
        match self {
            Self::Queue => Some(message.queue().as_str()),
            Self::Type => message.event_type().map(AsRef::as_ref),
            Self::Key => message.key().map(AsRef::as_ref),
            Self::Tenant => message.tenant().map(AsRef::as_ref),
        }
    }
}

impl Template {
    /// Parses a template.
    ///
    /// # Errors
    /// When it is empty, a brace is unbalanced, or a placeholder has an unknown name.
    pub fn parse(text: impl Into<String>) -> Result<Self, Invalid> {
        let text = text.into();
        let wrong = |rule: String| Err(Invalid::rule("template", rule));
        if text.is_empty() {
            return wrong("is empty; name a destination".to_owned());
        }
        let (mut parts, mut plain) = (Vec::new(), String::new());
        let mut rest = text.as_str();
        while let Some(at) = rest.find(['{', '}']) {
            plain.push_str(&rest[..at]);
            let brace = &rest[at..=at];
            rest = &rest[at + 1..];
            if let Some(after) = rest.strip_prefix(brace) {
                plain.push_str(brace);
                rest = after;
                continue;
            }
            let Some(end) = rest.find('}').filter(|_| brace == "{") else {
                return wrong(format!(
                    "{text:?} has a {brace:?} without its partner; write {brace}{brace} for a brace"
                ));
            };
            let (name, default) = match rest[..end].split_once('|') {
                Some((name, default)) => (name, Some(default.to_owned())),
                None => (&rest[..end], None),
            };
            let Some(placeholder) = Placeholder::named(name) else {
                return wrong(format!(
                    "\"{{{name}}}\" is not a placeholder; use {{queue}}, {{type}}, {{key}} or {{tenant}}"
                ));
            };
            if !plain.is_empty() {
                parts.push(Part::Text(std::mem::take(&mut plain)));
            }
            parts.push(Part::Placeholder { placeholder, default });
            rest = &rest[end + 1..];
        }
        plain.push_str(rest);
        if !plain.is_empty() {
            parts.push(Part::Text(plain));
        }
        Ok(Self { text, parts })
    }

    /// The address for `message`.
    ///
    /// # Errors
    /// When the message lacks the value of a placeholder without a default.
    pub fn render(&self, message: &Message) -> Result<String, Invalid> {
        // Long enough for most: it is made for every message.
        let mut name = String::with_capacity(self.text.len() + 16);
        for part in &self.parts {
            name.push_str(match part {
                Part::Text(text) => text,
                Part::Placeholder { placeholder, default } => placeholder
                    .value(message)
                    .or(default.as_deref())
                    .ok_or_else(|| self.missing(*placeholder))?,
            });
        }
        Ok(name)
    }

    /// The address, if it is the same for every message.
    pub fn fixed(&self) -> Option<&str> {
        match &self.parts[..] {
            [Part::Text(text)] => Some(text),
            _ => None,
        }
    }

    fn missing(&self, placeholder: Placeholder) -> Invalid {
        let name = placeholder.name();
        Invalid::rule(
            "destination",
            format!(
                "{self} needs a {name}, which the message does not have; write {{{name}|default}} if it may lack one"
            ),
        )
    }
}

impl fmt::Display for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message() -> Message {
        Message::builder("orders").event_type("order.placed").key("order-17").build().unwrap()
    }

    fn rendered(template: &str) -> String {
        match Template::parse(template).and_then(|template| template.render(&message())) {
            Ok(name) => name,
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn placeholders_are_filled_from_the_message() {
        assert_eq!(rendered("{queue}/{type}/{key}/{tenant|nobody}"), "orders/order.placed/order-17/nobody");
        assert_eq!(rendered("{type}"), "order.placed");
        assert_eq!(rendered("a{tenant|}b"), "ab");
        assert_eq!(rendered("{{{type}}}{{}}"), "{order.placed}{}");
        assert_eq!(
            rendered("to.{tenant}"),
            "destination: to.{tenant} needs a tenant, which the message does not have; write {tenant|default} if it may lack one"
        );
    }

    #[test]
    fn invalid_template_is_rejected_with_the_reason() {
        assert_eq!(rendered(""), "template: is empty; name a destination");
        assert_eq!(
            rendered("a{type"),
            r#"template: "a{type" has a "{" without its partner; write {{ for a brace"#
        );
        assert_eq!(rendered("a}b"), r#"template: "a}b" has a "}" without its partner; write }} for a brace"#);
        assert_eq!(
            rendered("{Type}"),
            r#"template: "{Type}" is not a placeholder; use {queue}, {type}, {key} or {tenant}"#
        );
    }

    #[test]
    fn template_without_placeholders_is_fixed() {
        assert_eq!(Template::parse("orders").unwrap().fixed(), Some("orders"));
        assert_eq!(Template::parse("{{orders}}").unwrap().fixed(), Some("{orders}"));
        assert_eq!(Template::parse("{queue}").unwrap().fixed(), None);
    }
}
