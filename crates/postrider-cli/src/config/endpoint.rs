//! A broker, a webhook or standard output: `[destinations.…]`, or the `source = { … }` of a consumer. The kind determines the keys.

use super::{
    kind::{KINDS, Kind},
    origin::ConfigValue,
    section::Section,
};
use std::ops::Deref;

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct EndpointSection {
    pub(crate) kind: ConfigValue<Kind>,
    section: Section,
}

impl EndpointSection {
    pub(super) fn new(section: Section) -> Option<Self> {
        let kind = ConfigValue::default(section.choice("kind", &KINDS)?);
        Some(Self { kind, section })
    }
}

impl Deref for EndpointSection {
    type Target = Section;

    fn deref(&self) -> &Section {
        &self.section
    }
}
