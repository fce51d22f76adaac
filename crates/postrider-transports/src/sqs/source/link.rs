//! Requests to one queue.

use super::{LONGEST, builder::Settings};
use crate::{
    aws::{AwsOptions, Kind, Listed, Refused, Service, Trouble, client, plan::ENTRIES},
    sqs::queue::{Sqs, refused},
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
use tokio::sync::{OnceCell, Semaphore};

/// A queue, looked up when it is first needed.
pub(super) struct Link {
    pub(super) options: AwsOptions,
    pub(super) settings: Settings,
    there: OnceCell<(Sqs, String)>,
    /// Requests under way that answer.
    room: Semaphore,
}

type Told = Vec<Result<(), SourceError>>;

impl Link {
    pub(super) fn new(options: AwsOptions, settings: Settings) -> Self {
        let room = Semaphore::new(settings.requests);
        Self { options, settings, there: OnceCell::new(), room }
    }

    /// The client and the URL of the queue.
    pub(super) async fn there(&self) -> Result<&(Sqs, String), Trouble> {
        let find = async || {
            let sqs = Sqs::new(&client::configure(&self.options).await?);
            let url = sqs.find(&self.settings.queue).await?;
            Ok((sqs, url))
        };
        self.there.get_or_try_init(find).await.map_err(|trouble| self.missing(trouble))
    }

    /// Up to ten messages, waited for as long as the settings say.
    pub(super) async fn fetch(&self, most: usize) -> Result<Vec<Message>, Trouble> {
        let (sqs, url) = self.there().await?;
        // Waiting is no silence.
        let longest = self.settings.wait + self.options.answer_timeout;
        let timeouts = TimeoutConfig::builder().operation_timeout(longest).build();
        let asked = sqs
            .0
            .receive_message()
            .queue_url(url)
            .max_number_of_messages(i32::try_from(most.min(ENTRIES)).unwrap_or(1))
            .wait_time_seconds(seconds(self.settings.wait))
            .visibility_timeout(seconds(self.settings.hold))
            .message_attribute_names("All")
            .message_system_attribute_names(System::All)
            .customize()
            .config_override(config::Builder::new().timeout_config(timeouts));
        let answer = asked.send().await.map_err(|error| self.missing(Trouble::of(&error)))?;
        Ok(answer.messages.unwrap_or_default())
    }

    /// Removes messages.
    pub(super) async fn delete(&self, handles: &[Arc<str>]) -> Told {
        let asked = handles.chunks(ENTRIES).map(|some| self.delete_some(some));
        join_all(asked).await.into_iter().flatten().collect()
    }

    /// Hides messages for so long from now on.
    pub(super) async fn hide(&self, handles: &[(Arc<str>, Duration)]) -> Told {
        let asked = handles.chunks(ENTRIES).map(|some| self.hide_some(some));
        join_all(asked).await.into_iter().flatten().collect()
    }

    /// Sends a message as it came to another queue.
    pub(super) async fn put_aside(&self, to: &str, message: &Message) -> Result<(), SourceError> {
        let (sqs, _) = self.there().await?;
        let to = sqs.find(to).await?;
        let _turn = self.room.acquire().await;
        let mut request = sqs
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
        request.send().await.map(|_| ()).map_err(|error| Trouble::of(&error).into())
    }

    async fn delete_some(&self, handles: &[Arc<str>]) -> Told {
        let entry = |(number, handle): (usize, &Arc<str>)| {
            DeleteMessageBatchRequestEntry::builder().id(number.to_string()).receipt_handle(&**handle).build()
        };
        let ask = async {
            let (sqs, url) = self.there().await?;
            let _turn = self.room.acquire().await;
            let entries = built(handles.iter().enumerate().map(entry))?;
            let asked = sqs.0.delete_message_batch().queue_url(url).set_entries(Some(entries));
            let answer = asked.send().await.map_err(|error| Trouble::of(&error))?;
            let accepted = answer.successful.into_iter().map(|each| each.id).collect();
            Ok(Listed { accepted, refused: refused(answer.failed) })
        };
        told(ask.await, handles.len())
    }

    async fn hide_some(&self, handles: &[(Arc<str>, Duration)]) -> Told {
        let entry = |(number, (handle, wait)): (usize, &(Arc<str>, Duration))| {
            ChangeMessageVisibilityBatchRequestEntry::builder()
                .id(number.to_string())
                .receipt_handle(&**handle)
                .visibility_timeout(seconds(*wait))
                .build()
        };
        let ask = async {
            let (sqs, url) = self.there().await?;
            let _turn = self.room.acquire().await;
            let entries = built(handles.iter().enumerate().map(entry))?;
            let asked = sqs.0.change_message_visibility_batch().queue_url(url).set_entries(Some(entries));
            let answer = asked.send().await.map_err(|error| Trouble::of(&error))?;
            let accepted = answer.successful.into_iter().map(|each| each.id).collect();
            Ok(Listed { accepted, refused: refused(answer.failed) })
        };
        told(ask.await, handles.len())
    }

    /// Whoever reads the error learns how to make what is missing.
    fn missing(&self, mut trouble: Trouble) -> Trouble {
        if trouble.kind == Kind::Missing {
            let queue = &self.settings.queue;
            trouble.said = format!("there is no {queue} ({}): {}", trouble.said, Sqs::make(queue));
        }
        trouble
    }
}

/// A status of 200 hides what failed: each entry has its own answer.
fn told(answer: Result<Listed, Trouble>, count: usize) -> Told {
    let refuse = |refused: &Refused| match refused.is_senders_fault {
        // The handle has expired, or was never one.
        true => SourceError::stale(refused.told()),
        false => SourceError::down(refused.told()),
    };
    match answer {
        Ok(listed) => listed.judged(count, refuse, |said| SourceError::down(said.to_owned())),
        Err(trouble) => (0..count).map(|_| Err(SourceError::down(trouble.said.clone()))).collect(),
    }
}

fn built<T>(entries: impl Iterator<Item = Result<T, BuildError>>) -> Result<Vec<T>, Trouble> {
    let built: Result<_, _> = entries.collect();
    built.map_err(|error| Trouble::new(Kind::Reject, error.to_string()))
}

/// Whole seconds, and never too early.
fn seconds(time: Duration) -> i32 {
    let time = time.min(LONGEST);
    i32::try_from(time.as_secs() + u64::from(time.subsec_nanos() > 0)).unwrap_or(i32::MAX)
}
