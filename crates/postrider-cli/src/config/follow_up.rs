//! `[[follow_ups]]`: outbound calls that follow a change, made as webhooks.

use super::{
    key::webhook,
    key_type::{Key, TableType, ValueType},
    origin::ConfigValue,
    route::{queue_name, template},
    section::Section,
    value::Mistake,
};
use postrider::{EventType, ResolverName};
use std::ops::Deref;

pub(super) const FOLLOW_UP: TableType = TableType::Section { keys, check: |_, _| {} };

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct FollowUpSection {
    pub(crate) database: ConfigValue<String>,
    pub(crate) queue: ConfigValue<String>,
    pub(crate) resolver: ConfigValue<String>,
    pub(crate) address: ConfigValue<String>,
    section: Section,
}

fn keys() -> Vec<Key> {
    let url =
        Key::url("\"https://payments.example/hooks\"").required().about("URL of the receiver of the calls");
    let mut keys = vec![
        Key::new("database", "\"shop\"", ValueType::Reference("databases"))
            .about("Database of the follow-ups; optional if there is only one"),
        Key::string("queue", "\"follow-ups\"")
            .default("\"follow-ups\"")
            .rule(queue_name)
            .about("Queue of the follow-ups"),
        Key::string("resolver", "\"payments\"")
            .required()
            .rule(|path, name| {
                let invalid = |error| Mistake::new(format!("{path} is not a valid resolver name"), error);
                ResolverName::new(name).map(drop).map_err(|error| invalid(error.to_string()))
            })
            .about("Name of the resolver, as follow-ups refer to it"),
        Key::new("operations", "[\"erase\"]", ValueType::Strings)
            .required()
            .rule(|path, operation| {
                let invalid = |error| Mistake::new(format!("{path} has an invalid entry"), error);
                EventType::new(operation).map(drop).map_err(|error| invalid(error.to_string()))
            })
            .about("Operations that the resolver supports"),
    ];
    keys.extend(webhook(url, "\"30s\""));
    keys.extend([
        Key::string("address", "\"{type}\"")
            .default("\"{type}\"")
            .rule(template)
            .about("Path below `url`; `{type}` is the operation, `{key}` the value of the reference, `{tenant}` the tenant"),
        Key::new("done_on", "[404, 410]", ValueType::Numbers)
            .default("[410]")
            .about("4xx statuses that count as success, because nothing is left to do"),
        Key::string("complete_to", "\"erased\"")
            .rule(queue_name)
            .about("Queue in which a message is staged when the last call about a subject has succeeded"),
    ]);
    keys
}

impl FollowUpSection {
    pub(super) fn new(section: Section) -> Option<Self> {
        Some(Self {
            database: section.text("database")?,
            queue: section.text("queue")?,
            resolver: section.text("resolver")?,
            address: section.text("address")?,
            section,
        })
    }
}

impl Deref for FollowUpSection {
    type Target = Section;

    fn deref(&self) -> &Section {
        &self.section
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::value::Value;
    use postrider::follow_up;

    #[test]
    fn default_queue_is_that_of_follow_ups() {
        let keys = keys();
        let queue = keys.iter().find(|key| key.name == "queue").unwrap();
        assert_eq!(queue.default_value(), Some(Value::String(follow_up::QUEUE.to_owned())));
    }
}
