//! Carries out follow-ups as webhooks.
//!
//! | answer | what it means |
//! |---|---|
//! | 2xx, and what the file says with `done_on` | done |
//! | 408, 425, 429, 3xx, 5xx | to be tried again, after `Retry-After` if that is said |
//! | every other 4xx | refused: trying again is of no use |
//! | none, or no connection | to be tried again; nobody knows whether it had its effect |

use crate::{brokers::webhook, config::FollowUpSection, problem::Problem};
use async_trait::async_trait;
use postrider::{
    Failure, Format, Invalid, Message, Outgoing, PublishError, Template, TenantId, Transport,
    cloudevents::rfc3339,
    saga::{Call, Resolved, Resolver},
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

/// So many follow-ups are called for at once.
pub(crate) const AT_ONCE: usize = 50;

/// Calls one receiver.
#[derive(Debug)]
pub(crate) struct Webhook {
    name: String,
    operations: Vec<String>,
    source: Arc<str>,
    address: Template,
    transport: HttpTransport,
}

/// What the receiver is told. Its keys are a promise.
#[derive(Debug, Serialize)]
struct Body<'c> {
    operation: &'c str,
    subject: &'c str,
    tenant: Option<&'c str>,
    reference: Reference<'c>,
    idempotency_key: String,
    /// The key of the call that this one undoes.
    undoes: Option<String>,
    attempt: u32,
    at: String,
    /// What is needed besides: JSON, or a text.
    payload: Option<Value>,
}

#[derive(Debug, Serialize)]
struct Reference<'c> {
    kind: &'c str,
    value: &'c str,
    extra: &'c BTreeMap<String, String>,
}

impl Webhook {
    /// `file` is where the section stands, and `source` who sends.
    pub(crate) fn new(file: &Path, source: &str, section: &FollowUpSection) -> Result<Self, Problem> {
        Self::made(source, section).map_err(|error| {
            let (line, name) = (section.line.0, &section.resolver.value);
            let what = format!("{}:{line}: resolver {name}: {error}", file.display());
            Problem::new(what, "change what stands below this [[follow_ups]]")
        })
    }

    fn made(source: &str, section: &FollowUpSection) -> Result<Self, Invalid> {
        let mut options = webhook::options(&section.webhook)?.with_at_once(AT_ONCE);
        let mut done = BTreeSet::new();
        for status in &section.done_on.value {
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
            operations: section.operations.value.clone(),
            source: source.into(),
            address: Template::parse(section.address.as_str())?,
            transport: HttpTransport::new(options)?,
        })
    }

    fn written(&self, call: &Call) -> Result<Outgoing, Failure> {
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

/// It will not be any other way the next time.
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

    async fn resolve(&self, call: &Call) -> Result<Resolved, Failure> {
        let outgoing = self.written(call)?;
        let error = match self.transport.publish(&[outgoing]).await.pop() {
            Some(Ok(_)) => return Ok(Resolved::Done),
            Some(Err(error)) => error,
            None => PublishError::unknown("the transport did not answer"),
        };
        let name = error.name();
        Err(match error {
            PublishError::Reject { source } => Failure::reject(source).named(name),
            PublishError::Retry { after: Some(after), source } => {
                Failure::retry_after(after, source).named(name)
            }
            PublishError::Retry { source, .. } => Failure::retry(source).named(name),
            PublishError::Down { source } => Failure::retry(source).named("Down"),
            error => Failure::retry(error).named("Unanswered"),
        })
    }
}
