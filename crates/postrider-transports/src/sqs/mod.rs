//! Amazon SQS, and what speaks its protocol.
//!
//! Messages go in requests of up to ten, by count and by bytes, side by side where order allows it. An HTTP status of 200 says nothing about a
//! message: the answer lists the ids of those that were accepted, and whoever is not in that list, once, was not.
//!
//! | what SQS says | what it means |
//! |---|---|
//! | its id is in `Successful`, once, and not in `Failed` | accepted |
//! | `Failed`, by the sender's fault: contents, attributes, length | refused for good |
//! | `Failed`, any other reason | refused for now |
//! | throttled, unavailable | refused for now, with a wait |
//! | no such queue, not permitted, a key of KMS that cannot be used | refused for now |
//! | its id is in neither list or more than once; silence, a cut, a status of 5xx | nobody knows |
//! | no connection, no credentials, a key that is not accepted | nothing gets through |
//!
//! **A destination** is the name of a queue in the account and region of the transport, or the URL of a queue. Names are looked up once, and again
//! when the queue is gone.
//!
//! **FIFO** is what ends in `.fifo`. The group is the message's key, percent-encoded (its hash where that is longer than 128 characters); a
//! message without a key is a group of its own. The deduplication id is the message's id, so that what comes again within five minutes
//! is taken and not delivered twice. A request has at most one message of a group, and when one fails, what is behind it in its group
//! is not sent.
//!
//! How a message looks there, and how to read it, is in the guide `docs/guides/sqs.md`.

mod check;
mod queue;
mod source;

pub use crate::aws::AwsOptions;
pub use source::{SqsSource, SqsSourceBuilder};

use crate::aws::Courier;
use async_trait::async_trait;
use postrider_core::{Capacity, Finding, Invalid, Outgoing, PublishError, Receipt, Transport};
use queue::Sqs;
use std::fmt;

/// Ten requests.
const BATCH: usize = 100;
/// The most bytes of a message with its attributes, and of a request.
const BYTES: usize = 1024 * 1024;
/// What is sent together is held in memory.
const BATCH_BYTES: usize = 10 * BYTES;

/// Publishes to queues of SQS.
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
pub struct SqsTransport(Courier<Sqs>);

impl SqsTransport {
    /// Checks the options. Credentials are looked for, and connections made, when there is something to send.
    ///
    /// # Errors
    /// Names the option that makes no sense.
    pub fn new(options: AwsOptions) -> Result<Self, Invalid> {
        Ok(Self(Courier::new(options)?))
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
