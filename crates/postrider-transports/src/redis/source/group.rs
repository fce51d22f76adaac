//! The group that a source is of: its names, and the commands that have them.

use super::place::Place;
use redis::{Cmd, ServerError};
use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::time::Instant;

/// In whose name entries wait that were handed back. Nobody reads under it, so that nothing of what a consumer has is ever to come again:
/// it can leave the group without taking anything along.
pub(super) const WAITING: &str = "postrider-waiting";
/// How the names begin that nobody chose.
pub(super) const UNNAMED: &str = "postrider-";
/// Server and client do not round a millisecond alike.
const SLACK: Duration = Duration::from_millis(2);

/// Where a group begins that is made here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Start {
    Beginning,
    End,
}

impl Start {
    fn place(self) -> &'static str {
        match self {
            Self::Beginning => "0",
            Self::End => "$",
        }
    }
}

/// What readers and answerers of a source share.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) stream: String,
    pub(super) name: String,
    pub(super) consumer: Arc<str>,
    /// The name was chosen, and may have been used before.
    pub(super) is_named: bool,
    pub(super) created_at: Option<Start>,
    pub(super) hold: Duration,
    pub(super) refused_to: Option<String>,
    pub(super) deletes: bool,
    /// What was to come again, by the time at which it may be asked for. The server knows it, too: this spares the search.
    pub(super) due: Mutex<BTreeSet<(Instant, Place)>>,
}

impl Group {
    pub(super) fn hold_millis(&self) -> u64 {
        u64::try_from(self.hold.as_millis()).unwrap_or(u64::MAX)
    }

    /// A command about this group, up to the names of stream and group.
    pub(super) fn command(&self, name: &str) -> Cmd {
        let mut command = redis::cmd(name);
        command.arg(&self.stream).arg(&self.name);
        command
    }

    /// The command that makes the group, and the stream with it.
    pub(super) fn creation(&self, start: Start) -> Cmd {
        let mut command = redis::cmd("XGROUP");
        command.arg("CREATE").arg(&self.stream).arg(&self.name).arg(start.place()).arg("MKSTREAM");
        command
    }

    /// The same for people.
    pub(super) fn how_to_create(&self) -> String {
        format!("XGROUP CREATE {} {} 0 MKSTREAM", self.stream, self.name)
    }

    /// What a refusal means to a reader.
    pub(super) fn refused(&self, error: &ServerError) -> String {
        let said = format!("{}: {}", error.code(), error.details().unwrap_or("no details"));
        match error.code() {
            "NOGROUP" => {
                format!(
                    "there is no group {} of the stream {}: {}",
                    self.name,
                    self.stream,
                    self.how_to_create()
                )
            }
            "MOVED" | "ASK" => format!(
                "{said}; the server is one of a cluster, and another one has this stream: give its URL"
            ),
            _ => said,
        }
    }

    /// These are to be asked for after so long.
    pub(super) fn ask_again(&self, place: Place, after: Duration) {
        self.due().insert((Instant::now() + after + SLACK, place));
    }

    /// What may be asked for now, up to so many.
    pub(super) fn take_due(&self, most: usize) -> Vec<Place> {
        let (mut due, now) = (self.due(), Instant::now());
        let mut taken = Vec::new();
        while taken.len() < most
            && let Some((at, place)) = due.first().copied()
            && at <= now
        {
            due.pop_first();
            taken.push(place);
        }
        taken
    }

    /// When there is something to be asked for.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.due().first().map(|(at, _)| *at)
    }

    fn due(&self) -> MutexGuard<'_, BTreeSet<(Instant, Place)>> {
        self.due.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
