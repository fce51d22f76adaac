//! A transport that publishes to Amazon SNS.
//!
//! Messages are encoded, split into requests and matched with their results as in SQS; the size limit of a message and of a request is
//! 256 KiB with all attributes. **A destination** is the ARN of a topic, or the name of one in the account and region of the transport, which
//! is looked up once in the list of topics. Topics that end in `.fifo` have groups and deduplication ids as FIFO queues have.
//!
//! **Accepted** means that SNS has the message and will try to deliver it to each subscription. The rest depends on the subscription:
//! without one the message is lost at once, a filter may leave it out, and a message that cannot be delivered is dropped unless the
//! subscription has a dead-letter queue. [`check`](postrider_core::Transport::check) reports all three.

mod check;
mod client;

pub use crate::aws::AwsOptions;

use crate::aws::Publisher;
use async_trait::async_trait;
use client::Sns;
use postrider_core::{Capacity, Finding, Invalid, Outgoing, PublishError, Receipt, Transport};
use std::fmt;

/// Ten requests.
const BATCH: usize = 100;
/// The size limit in bytes of a message with its attributes, and of a request.
const BYTES: usize = 256 * 1024;

/// Publishes to SNS topics.
///
/// ```no_run
/// # use postrider_transports::sns::{AwsOptions, SnsTransport};
/// # fn example() -> Result<(), postrider_core::Invalid> {
/// let sns = SnsTransport::new(AwsOptions::new().with_region("eu-central-1"))?;
/// # Ok(())
/// # }
/// ```
pub struct SnsTransport(Publisher<Sns>);

impl SnsTransport {
    /// Validates the options. Credentials are loaded, and connections opened, when the first message is published.
    ///
    /// # Errors
    /// Names the invalid option.
    pub fn new(options: AwsOptions) -> Result<Self, Invalid> {
        Ok(Self(Publisher::new(options)?))
    }
}

#[async_trait]
impl Transport for SnsTransport {
    fn kind(&self) -> &'static str {
        "sns"
    }

    fn capacity(&self) -> Capacity {
        Capacity::of(BATCH).with_message_bytes(BYTES)
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

impl fmt::Debug for SnsTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SnsTransport").field(&self.0).finish()
    }
}
