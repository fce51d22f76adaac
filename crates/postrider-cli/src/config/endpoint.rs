//! A broker, a webhook or standard output: `[destinations.…]`, or the `source = { … }` of a consumer. The kind determines the keys.

#[cfg(any(feature = "rabbitmq", feature = "nats", feature = "redis", feature = "kafka"))]
use super::secret::Secret;
use super::{
    kind::{KINDS, Kind},
    origin::ConfigValue,
    section::Section,
};
#[cfg(any(feature = "rabbitmq", feature = "nats", feature = "redis", feature = "kafka"))]
use postrider::Invalid;
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

    /// The URL to connect to.
    #[cfg(any(feature = "rabbitmq", feature = "nats", feature = "redis", feature = "kafka"))]
    pub(crate) fn url(&self) -> Result<&str, Invalid> {
        self.secret("url").map(Secret::reveal).ok_or_else(|| Invalid::rule("url", "is missing"))
    }

    /// The files of the client certificate (mTLS) and of its key.
    #[cfg(any(feature = "rabbitmq", feature = "nats", feature = "kafka"))]
    pub(crate) fn client_certificate(&self) -> Option<(&str, &str)> {
        Some((self.string("certificate_file")?, self.string("key_file")?))
    }
}

impl Deref for EndpointSection {
    type Target = Section;

    fn deref(&self) -> &Section {
        &self.section
    }
}
