//! The connection to one queue: the requests that receive, ack and extend.

use super::{MAX_VISIBILITY_TIMEOUT, builder::Settings};
use crate::{
    aws::{AwsOptions, BatchResult, FailedEntry, FailureKind, Service, ServiceError, batch::ENTRIES, client},
    session::{Generation, ReusableConnection, Session, SessionError},
    sqs::client::{Sqs, failed_entries},
};
use aws_sdk_sqs::{
    config,
    error::BuildError,
    types::{
        ChangeMessageVisibilityBatchRequestEntry, DeleteMessageBatchRequestEntry, Message,
        MessageSystemAttributeName as System,
    },
};
use aws_smithy_types::timeout::TimeoutConfig;
use futures_util::future::join_all;
use postrider_core::SourceError;
use std::{sync::Arc, time::Duration};
use tokio::sync::Semaphore;

/// A queue, and the session with the service. The session is not closed with the source: requests that are running then release the
/// messages that they receive.
pub(super) struct QueueConnection {
    pub(super) options: AwsOptions,
    pub(super) settings: Settings,
    session: Session<QueueClient>,
    /// Limits the requests that ack.
    permits: Semaphore,
}

/// A client, and the URL of the queue. The client opens and replaces TCP connections by itself, so it is never suspect.
pub(super) struct QueueClient {
    pub(super) sqs: Sqs,
    pub(super) url: String,
}

impl ReusableConnection for QueueClient {}

impl SessionError for ServiceError {
    fn closed() -> Self {
        Self::unavailable("the source is closed".to_owned())
    }

    fn timed_out(within: Duration) -> Self {
        Self::unavailable(format!("no credentials, or no URL of the queue, within {within:?}"))
    }
}

type AckResults = Vec<Result<(), SourceError>>;

impl QueueConnection {
    pub(super) fn new(options: AwsOptions, settings: Settings) -> Self {
        let permits = Semaphore::new(settings.concurrency);
        // Credentials may come from another service, which gets the same time.
        let session = Session::new((options.connect_timeout() + options.request_timeout()) * 2);
        Self { options, settings, session, permits }
    }

    /// The client, created with the first request.
    pub(super) async fn client(&self) -> Result<Generation<QueueClient>, ServiceError> {
        let connect = async {
            let sqs = Sqs::new(&client::configure(&self.options).await?);
            let url = sqs.resolve(&self.settings.queue).await?;
            Ok(QueueClient { sqs, url })
        };
        self.session.connection(connect).await.map_err(|error| self.missing(error))
    }

    /// Receives up to ten messages, with long polling.
    pub(super) async fn fetch(&self, most: usize) -> Result<Vec<Message>, ServiceError> {
        let client = self.client().await?;
        // Long polling is not a missing response.
        let timeout = self.settings.wait + self.options.request_timeout();
        let timeouts = TimeoutConfig::builder().operation_timeout(timeout).build();
        let request = client
            .sqs
            .0
            .receive_message()
            .queue_url(&client.url)
            .max_number_of_messages(i32::try_from(most.min(ENTRIES)).unwrap_or(1))
            .wait_time_seconds(seconds(self.settings.wait))
            .visibility_timeout(seconds(self.settings.visibility_timeout))
            .message_attribute_names("All")
            .message_system_attribute_names(System::All)
            .customize()
            .config_override(config::Builder::new().timeout_config(timeouts));
        let response = request.send().await.map_err(|error| self.missing(ServiceError::of(&error)))?;
        Ok(response.messages.unwrap_or_default())
    }

    /// Deletes messages.
    pub(super) async fn delete(&self, handles: &[Arc<str>]) -> AckResults {
        let batches = handles.chunks(ENTRIES).map(|batch| self.delete_batch(batch));
        join_all(batches).await.into_iter().flatten().collect()
    }

    /// Sets the visibility timeout of messages, counted from now.
    pub(super) async fn change_visibility(&self, handles: &[(Arc<str>, Duration)]) -> AckResults {
        let batches = handles.chunks(ENTRIES).map(|batch| self.change_visibility_batch(batch));
        join_all(batches).await.into_iter().flatten().collect()
    }

    /// Sends the original message to another queue.
    pub(super) async fn forward(&self, to: &str, message: &Message) -> Result<(), SourceError> {
        let client = self.client().await?;
        let to = client.sqs.resolve(to).await?;
        let _permit = self.permits.acquire().await;
        let mut request = client
            .sqs
            .0
            .send_message()
            .queue_url(&to)
            .set_message_body(message.body.clone())
            .set_message_attributes(message.message_attributes.clone());
        if to.ends_with(".fifo") {
            let id = message.message_id().unwrap_or_default();
            let group = super::wire::group(message).unwrap_or(id);
            request = request.message_group_id(group).message_deduplication_id(id);
        }
        request.send().await.map(|_| ()).map_err(|error| ServiceError::of(&error).into())
    }

    async fn delete_batch(&self, handles: &[Arc<str>]) -> AckResults {
        let entry = |(number, handle): (usize, &Arc<str>)| {
            DeleteMessageBatchRequestEntry::builder().id(number.to_string()).receipt_handle(&**handle).build()
        };
        let send = async {
            let client = self.client().await?;
            let _permit = self.permits.acquire().await;
            let entries = build_entries(handles.iter().enumerate().map(entry))?;
            let request =
                client.sqs.0.delete_message_batch().queue_url(&client.url).set_entries(Some(entries));
            let response = request.send().await.map_err(|error| ServiceError::of(&error))?;
            let accepted = response.successful.into_iter().map(|each| each.id).collect();
            Ok(BatchResult { accepted, failed: failed_entries(response.failed) })
        };
        ack_results(send.await, handles.len())
    }

    async fn change_visibility_batch(&self, handles: &[(Arc<str>, Duration)]) -> AckResults {
        let entry = |(number, (handle, wait)): (usize, &(Arc<str>, Duration))| {
            ChangeMessageVisibilityBatchRequestEntry::builder()
                .id(number.to_string())
                .receipt_handle(&**handle)
                .visibility_timeout(seconds(*wait))
                .build()
        };
        let send = async {
            let client = self.client().await?;
            let _permit = self.permits.acquire().await;
            let entries = build_entries(handles.iter().enumerate().map(entry))?;
            let request = client.sqs.0.change_message_visibility_batch();
            let request = request.queue_url(&client.url).set_entries(Some(entries));
            let response = request.send().await.map_err(|error| ServiceError::of(&error))?;
            let accepted = response.successful.into_iter().map(|each| each.id).collect();
            Ok(BatchResult { accepted, failed: failed_entries(response.failed) })
        };
        ack_results(send.await, handles.len())
    }

    /// Adds the command that creates a missing queue.
    fn missing(&self, mut error: ServiceError) -> ServiceError {
        if error.kind == FailureKind::Missing {
            let queue = &self.settings.queue;
            error.reason = format!(
                "{queue} does not exist ({}); create it: {}",
                error.reason,
                Sqs::create_command(queue)
            );
        }
        error
    }
}

/// One result for each entry: a response with status 200 may contain failed entries.
fn ack_results(response: Result<BatchResult, ServiceError>, count: usize) -> AckResults {
    let classify = |failed: &FailedEntry| match failed.is_senders_fault {
        // The receipt handle has expired, or was never valid.
        true => SourceError::stale(failed.describe()),
        false => SourceError::unavailable(failed.describe()),
    };
    match response {
        Ok(batch) => batch.results_by(count, classify, |reason| SourceError::unavailable(reason.to_owned())),
        Err(error) => (0..count).map(|_| Err(SourceError::unavailable(error.reason.clone()))).collect(),
    }
}

fn build_entries<T>(entries: impl Iterator<Item = Result<T, BuildError>>) -> Result<Vec<T>, ServiceError> {
    let built: Result<_, _> = entries.collect();
    built.map_err(|error| ServiceError::new(FailureKind::Reject, error.to_string()))
}

/// Whole seconds, rounded up.
fn seconds(time: Duration) -> i32 {
    let time = time.min(MAX_VISIBILITY_TIMEOUT);
    i32::try_from(time.as_secs() + u64::from(time.subsec_nanos() > 0)).unwrap_or(i32::MAX)
}
