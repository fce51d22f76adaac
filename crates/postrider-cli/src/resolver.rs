//! Makes the calls of follow-ups as webhooks.
//!
//! | response | outcome |
//! |---|---|
//! | 2xx, and the statuses of `done_on` | done |
//! | 408, 425, 429, 3xx, 5xx | retried, after `Retry-After` if the response has it |
//! | any other 4xx | rejected: a retry would not help |
//! | none, or no connection | retried; the call may or may not have had its effect |

use crate::{brokers::webhook, config::FollowUpSection, problem::Problem};
use async_trait::async_trait;
use postrider::{
    Failure, Format, Invalid, Message, Outgoing, PublishError, Template, TenantId, Transport,
    cloudevents::rfc3339,
    saga::{Resolution, Resolver, ResolverCall},
    transports::http::HttpTransport,
};
use serde::Serialize;
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::Arc,
    time::SystemTime,
};

/// How many calls are in flight at once.
pub(crate) const CONCURRENT_CALLS: usize = 50;

/// A resolver that calls one webhook receiver.
#[derive(Debug)]
pub(crate) struct Webhook {
    name: String,
    operations: Vec<String>,
    source: Arc<str>,
    address: Template,
    transport: HttpTransport,
}

/// The JSON body of a call. Its keys are stable.
#[derive(Debug, Serialize)]
struct Body<'c> {
    operation: &'c str,
    subject: &'c str,
    tenant: Option<&'c str>,
    reference: Reference<'c>,
    idempotency_key: String,
    /// The idempotency key of the call that this one undoes.
    undoes: Option<String>,
    attempt: u32,
    at: String,
    /// The payload of the follow-up: JSON, or a string.
    payload: Option<Value>,
}

#[derive(Debug, Serialize)]
struct Reference<'c> {
    kind: &'c str,
    value: &'c str,
    extra: &'c BTreeMap<String, String>,
}

impl Webhook {
    /// `file` is the configuration file, for error messages; `source` is the CloudEvents source.
    pub(crate) fn new(file: &Path, source: &str, section: &FollowUpSection) -> Result<Self, Problem> {
        Self::build(source, section).map_err(|error| {
            let (line, name) = (section.line.0, &section.resolver.value);
            let what = format!("{}:{line}: resolver {name}: {error}", file.display());
            Problem::new(what, "fix this [[follow_ups]] section")
        })
    }

    fn build(source: &str, section: &FollowUpSection) -> Result<Self, Invalid> {
        let mut options = webhook::options(section)?.with_concurrency(CONCURRENT_CALLS);
        let mut done = BTreeSet::new();
        for status in section.numbers("done_on") {
            let status = u16::try_from(*status).unwrap_or(u16::MAX);
            options = options.with_accepted(status)?;
            done.insert(status);
        }
        for status in (400..500).filter(|status| !matches!(status, 408 | 425 | 429) && !done.contains(status))
        {
            options = options.with_rejected(status)?;
        }
        Ok(Self {
            name: section.resolver.value.clone(),
            operations: section.strings("operations").to_vec(),
            source: source.into(),
            address: Template::parse(section.address.as_str())?,
            transport: HttpTransport::new(options)?,
        })
    }

    fn write(&self, call: &ResolverCall) -> Result<Outgoing, Failure> {
        let (key, now) = (call.idempotency_key(), SystemTime::now());
        let payload = match call.payload() {
            None => None,
            Some(bytes) => Some(match serde_json::from_slice(bytes) {
                Ok(json) => json,
                Err(_) => Value::String(String::from_utf8(bytes.to_vec()).map_err(unwritable)?),
            }),
        };
        let body = Body {
            operation: call.operation().as_str(),
            subject: call.subject().as_str(),
            tenant: call.tenant().map(TenantId::as_str),
            reference: Reference {
                kind: call.reference().kind(),
                value: call.reference().value(),
                extra: call.reference().extra(),
            },
            idempotency_key: key.to_string(),
            undoes: call.undoes().map(|undone| undone.to_string()),
            attempt: call.attempt(),
            at: rfc3339::format(now),
            payload,
        };
        let mut message = Message::builder("follow-ups")
            .event_type(call.operation().as_str())
            .key(call.reference().value())
            .header("idempotency-key", key.to_string())
            .json(&body);
        if let Some(tenant) = call.tenant() {
            message = message.tenant(tenant.as_str());
        }
        let message = message.build().map_err(unwritable)?;
        let address = self.address.render(&message).map_err(unwritable)?;
        Outgoing::write(&message, key, now, Arc::clone(&self.source), address, Format::Binary)
            .map_err(unwritable)
    }
}

/// A call that cannot be written is rejected: a retry would not help.
fn unwritable(error: impl std::error::Error + Send + Sync + 'static) -> Failure {
    Failure::reject(error).named("Unwritable")
}

#[async_trait]
impl Resolver for Webhook {
    fn name(&self) -> &str {
        &self.name
    }

    fn operations(&self) -> &[&str] {
        &[]
    }

    fn can(&self, operation: &str) -> bool {
        self.operations.iter().any(|known| known == operation)
    }

    async fn resolve(&self, call: &ResolverCall) -> Result<Resolution, Failure> {
        let outgoing = self.write(call)?;
        let error = match self.transport.publish(&[outgoing]).await.pop() {
            Some(Ok(_)) => return Ok(Resolution::Done),
            Some(Err(error)) => error,
            None => PublishError::unknown("the transport returned no result"),
        };
        let name = error.name();
        Err(match error {
            PublishError::Reject { source } => Failure::reject(source).named(name),
            PublishError::Retry { after: Some(after), source } => {
                Failure::retry_after(after, source).named(name)
            }
            PublishError::Retry { source, .. } => Failure::retry(source).named(name),
            PublishError::Unavailable { source } => Failure::retry(source).named("Unavailable"),
            PublishError::AddressUnavailable { source } => Failure::retry(source).named(name),
            error => Failure::retry(error).named("NoResponse"),
        })
    }
}
