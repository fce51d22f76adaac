//! Amazon SQS and compatible servers: a transport that publishes to queues, and a source that receives from one.
//!
//! Messages are sent in requests of up to ten, split by count and by bytes, concurrently where the order allows it. An HTTP status of 200 says
//! nothing about a message: the response lists the ids that were accepted, and a message whose id is not in that list exactly once was not.
//!
//! | response of SQS | publish result |
//! |---|---|
//! | the id is in `Successful`, once, and not in `Failed` | accepted |
//! | `Failed`, by the sender's fault: contents, attributes, length | rejected permanently |
//! | `Failed`, any other reason | retry |
//! | throttled, service unavailable | retry, after a wait |
//! | no such queue, no permission, a KMS key that cannot be used | retry |
//! | the id is in neither list or more than once; a timeout, a lost connection, a status of 5xx | unknown |
//! | no connection, no credentials, an access key that is not accepted | unavailable |
//!
//! **A destination** is the name of a queue in the account and region of the transport, or the URL of a queue. A name is looked up once, and
//! again after the queue was deleted.
//!
//! **FIFO** queues end in `.fifo`. The group is the message's key, percent-encoded (its hash if that is longer than 128 characters); a
//! message without a key is a group of its own. The deduplication id is the message's id, so that SQS accepts a retry within five minutes and
//! does not deliver it twice. A request has at most one message of a group, and when a message fails, the messages behind it in its group
//! are not sent.
//!
//! The guide `docs/guides/sqs.md` describes the wire format, and how consumers in other languages read it.

mod check;
mod client;
mod source;

pub use crate::aws::AwsOptions;
pub use source::{SqsSource, SqsSourceBuilder};

use crate::aws::Publisher;
use async_trait::async_trait;
use client::Sqs;
use postrider_core::{Capacity, Finding, Invalid, Outgoing, PublishError, Receipt, Transport};
use std::fmt;

/// Ten requests.
const BATCH: usize = 100;
/// The size limit in bytes of a message with its attributes, and of a request.
const BYTES: usize = 1024 * 1024;
/// A batch is held in memory.
const BATCH_BYTES: usize = 10 * BYTES;

/// Publishes to SQS queues.
///
/// ```no_run
/// # use postrider_core::Transport;
/// # use postrider_transports::sqs::{AwsOptions, SqsTransport};
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let sqs = SqsTransport::new(AwsOptions::new().with_region("eu-central-1"))?;
/// for finding in sqs.check(&["orders", "payments.fifo"]).await? {
///     println!("{} {}: {} {}", finding.severity, finding.subject, finding.reason, finding.fix);
/// }
/// # Ok(())
/// # }
/// ```
pub struct SqsTransport(Publisher<Sqs>);

impl SqsTransport {
    /// Validates the options. Credentials are loaded, and connections opened, when the first message is published.
    ///
    /// # Errors
    /// Names the invalid option.
    pub fn new(options: AwsOptions) -> Result<Self, Invalid> {
        Ok(Self(Publisher::new(options)?))
    }
}

#[async_trait]
impl Transport for SqsTransport {
    fn kind(&self) -> &'static str {
        "sqs"
    }

    fn capacity(&self) -> Capacity {
        Capacity::of(BATCH).with_message_bytes(BYTES).with_batch_bytes(BATCH_BYTES)
    }

    async fn publish(&self, batch: &[Outgoing]) -> Vec<Result<Receipt, PublishError>> {
        self.0.publish(batch).await
    }

    async fn check(&self, destinations: &[&str]) -> Result<Vec<Finding>, PublishError> {
        let service = self.0.service().await?;
        let mut findings = Vec::new();
        for destination in destinations {
            findings.extend(check::findings(&service, destination).await?);
        }
        Ok(findings)
    }

    async fn close(&self) {
        self.0.close().await;
    }
}

impl fmt::Debug for SqsTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SqsTransport").field(&self.0).finish()
    }
}
