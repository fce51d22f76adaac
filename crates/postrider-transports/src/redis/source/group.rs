//! The consumer group of a source: its names, and the commands that contain them.

use super::entry_id::EntryId;
use redis::{Cmd, ServerError};
use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::time::Instant;

/// The consumer name that owns nacked entries until their redelivery. No process reads under it, so no entry of a real consumer ever waits
/// for redelivery: a consumer can leave the group without taking pending entries with it.
pub(super) const NACKED_CONSUMER: &str = "postrider-waiting";
/// Prefix of generated consumer names.
pub(super) const GENERATED_PREFIX: &str = "postrider-";
/// Server and client round milliseconds differently.
const SLACK: Duration = Duration::from_millis(2);

/// Where a created group starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Start {
    Beginning,
    End,
}

impl Start {
    fn start_id(self) -> &'static str {
        match self {
            Self::Beginning => "0",
            Self::End => "$",
        }
    }
}

/// The state that the reading and the acking side of a source share.
#[derive(Debug)]
pub(super) struct ConsumerGroup {
    pub(super) stream: String,
    pub(super) name: String,
    pub(super) consumer: Arc<str>,
    /// The consumer name is configured, and may have been used before.
    pub(super) is_named: bool,
    pub(super) created_at: Option<Start>,
    pub(super) ack_deadline: Duration,
    pub(super) reject_to: Option<String>,
    pub(super) delete_when_done: bool,
    /// Nacked entries, by the time at which they may be claimed. The server has the same information; this saves the search.
    pub(super) due: Mutex<BTreeSet<(Instant, EntryId)>>,
}

impl ConsumerGroup {
    pub(super) fn ack_deadline_millis(&self) -> u64 {
        u64::try_from(self.ack_deadline.as_millis()).unwrap_or(u64::MAX)
    }

    /// A command on this group, up to the names of stream and group.
    pub(super) fn command(&self, name: &str) -> Cmd {
        let mut command = redis::cmd(name);
        command.arg(&self.stream).arg(&self.name);
        command
    }

    /// The command that creates the group, and the stream if necessary.
    pub(super) fn create_command(&self, start: Start) -> Cmd {
        let mut command = redis::cmd("XGROUP");
        command.arg("CREATE").arg(&self.stream).arg(&self.name).arg(start.start_id()).arg("MKSTREAM");
        command
    }

    /// The same command as text, for error messages.
    pub(super) fn create_command_text(&self) -> String {
        format!("XGROUP CREATE {} {} 0 MKSTREAM", self.stream, self.name)
    }

    /// A server error as text, with its remedy.
    pub(super) fn describe_error(&self, error: &ServerError) -> String {
        let text = format!("{}: {}", error.code(), error.details().unwrap_or("no details"));
        match error.code() {
            "NOGROUP" => {
                format!(
                    "group {} of the stream {} does not exist: {}",
                    self.name,
                    self.stream,
                    self.create_command_text()
                )
            }
            "MOVED" | "ASK" => {
                format!("{text}; another node of the cluster has this stream: configure its URL")
            }
            _ => text,
        }
    }

    /// The entry may be claimed after `after`.
    pub(super) fn schedule_claim(&self, id: EntryId, after: Duration) {
        self.due().insert((Instant::now() + after + SLACK, id));
    }

    /// Removes and returns up to `most` entries that may be claimed now.
    pub(super) fn take_due(&self, most: usize) -> Vec<EntryId> {
        let (mut due, now) = (self.due(), Instant::now());
        let mut ids = Vec::new();
        while ids.len() < most
            && let Some((at, id)) = due.first().copied()
            && at <= now
        {
            due.pop_first();
            ids.push(id);
        }
        ids
    }

    /// The time at which the next nacked entry may be claimed.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.due().first().map(|(at, _)| *at)
    }

    fn due(&self) -> MutexGuard<'_, BTreeSet<(Instant, EntryId)>> {
        self.due.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
