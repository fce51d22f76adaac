//! `postrider messages` and `postrider dead`: messages as an operator sees them, and what he does about them.

mod bulk;
mod change;
mod groups;
mod ls;
mod show;
mod trace;
mod view;

use crate::{exit::Exit, moment, problem::Problem};
use change::Verb;
use postrider::{
    EventType, OrderingKey, QueueName, Reason,
    inspect::{ListRequest, Room, Selection},
};
use std::time::SystemTime;
use tokio_util::sync::CancellationToken;

const EXAMPLES: &str = "Examples:
  postrider messages ls --queue orders --db shop.db                     what is due, oldest first
  postrider messages ls --queue orders --room later --jsonl --db shop.db
  postrider messages show ID --payload --db shop.db
  postrider messages trace ID --db shop.db                              where it is, and what became of it
  postrider messages requeue --queue orders ID --why 'mended' --db shop.db
  postrider messages discard --queue orders ID --why 'sent by mistake' --db shop.db";

const DEAD_EXAMPLES: &str = "Examples:
  postrider dead groups --db shop.db                                    what failed, and how often
  postrider dead ls --queue orders --reason rejected --since 2h --db shop.db
  postrider dead show --queue orders ID --payload --db shop.db
  postrider dead requeue --queue orders ID --why 'the address was mended' --db shop.db
  postrider dead requeue --queue orders --reason rejected --dry-run --why 'mended' --db shop.db
  postrider dead requeue --queue orders --error 'no such address' --yes --why 'mended' --db shop.db
  postrider dead discard --queue orders --type order.test --yes --why 'only tests' --db shop.db

What is put back goes under its own identity, in its key's order. What is changed is written down, with who and why.
Many are changed in steps, oldest first. Ctrl-C stops between two steps; run again, it goes on with what is left.";

#[derive(Debug, clap::Subcommand)]
#[command(after_help = EXAMPLES)]
pub(crate) enum Messages {
    /// List the messages of a queue, oldest first
    Ls(ls::Args<InRoom>),
    /// Show one message, wherever it is; ends with 4 when it is not there
    Show(show::Args),
    /// Everything that is known of a message, a key or a trace, in all queues; ends with 4 when that is nothing
    Trace(trace::Args),
    /// Put dead letters back, by id or by what they have in common
    Requeue(change::Args<Dead>),
    /// Remove messages that are in nobody's hands, by id or by what they have in common
    Discard(change::Args<InRoom>),
}

#[derive(Debug, clap::Subcommand)]
#[command(after_help = DEAD_EXAMPLES)]
pub(crate) enum DeadLetters {
    /// Count dead letters by queue, reason and kind of error
    Groups(groups::Args),
    /// List the dead letters of a queue, the longest dead first
    Ls(ls::Args<Dead>),
    /// Show one dead letter; ends with 4 when it is not there
    Show(show::Args),
    /// Put dead letters back, by id or by what they have in common
    Requeue(change::Args<Dead>),
    /// Remove dead letters, by id or by what they have in common
    Discard(change::Args<Dead>),
}

impl Messages {
    pub(crate) async fn run(self, stop: CancellationToken) -> Result<Exit, Problem> {
        match self {
            Self::Ls(args) => ls::run(args, &stop).await,
            Self::Show(args) => show::run(args, None, &stop).await,
            Self::Trace(args) => trace::run(args, &stop).await,
            Self::Requeue(args) => change::run(args, Verb::Requeue, &stop).await,
            Self::Discard(args) => change::run(args, Verb::Discard, &stop).await,
        }
    }
}

impl DeadLetters {
    pub(crate) async fn run(self, stop: CancellationToken) -> Result<Exit, Problem> {
        match self {
            Self::Groups(args) => groups::run(args, &stop).await,
            Self::Ls(args) => ls::run(args, &stop).await,
            Self::Show(args) => show::run(args, Some(Room::Dead), &stop).await,
            Self::Requeue(args) => change::run(args, Verb::Requeue, &stop).await,
            Self::Discard(args) => change::run(args, Verb::Discard, &stop).await,
        }
    }
}

/// Which room is meant: said by the user, or by the subcommand.
pub(crate) trait Where: clap::Args {
    fn room(&self) -> Room;
}

/// The dead letters.
#[derive(Debug, clap::Args)]
pub(crate) struct Dead {}

impl Where for Dead {
    fn room(&self) -> Room {
        Room::Dead
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct InRoom {
    /// Where they are
    #[arg(long, default_value = "ready")]
    room: Rooms,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Rooms {
    /// What may run now, in somebody's hands or not
    Ready,
    /// What waits: timers and retries
    Later,
    /// Dead letters
    Dead,
    /// What is kept after success
    Archive,
}

impl Where for InRoom {
    fn room(&self) -> Room {
        match self.room {
            Rooms::Ready => Room::Ready,
            Rooms::Later => Room::Later,
            Rooms::Dead => Room::Dead,
            Rooms::Archive => Room::Archive,
        }
    }
}

/// What messages have in common.
#[derive(Debug, clap::Args)]
pub(crate) struct Filter<W: Where> {
    /// The queue
    #[arg(long)]
    queue: QueueName,

    #[command(flatten)]
    place: W,

    /// Only dead letters of this reason: max_deliveries, retries_exhausted, rejected or undecodable
    #[arg(long)]
    reason: Option<Reason>,

    /// Only this type
    #[arg(long = "type", value_name = "TYPE")]
    event_type: Option<EventType>,

    /// Only this key
    #[arg(long)]
    key: Option<OrderingKey>,

    /// Only those whose last error begins with this, as postrider dead groups shows it
    #[arg(long, value_name = "PREFIX")]
    error: Option<String>,

    /// Only those that failed, were delivered or are due since then: 2026-10-14T12:00:00Z, or 2h for two hours ago
    #[arg(long, value_name = "MOMENT", value_parser = moment::parse)]
    since: Option<SystemTime>,
}

impl<W: Where> Filter<W> {
    fn request(&self) -> ListRequest {
        ListRequest {
            key: self.key.clone(),
            event_type: self.event_type.clone(),
            reason: self.reason,
            error: self.error.clone(),
            ..ListRequest::new(self.queue.clone(), self.place.room())
        }
    }

    fn selection(&self) -> Selection {
        Selection {
            since: self.since,
            key: self.key.clone(),
            event_type: self.event_type.clone(),
            reason: self.reason,
            error: self.error.clone(),
            ..Selection::new(self.queue.clone(), self.place.room())
        }
    }
}
