//! The loop that everything shares: claim → hand over → deliver → settle.
//!
//! ```text
//!             claim            hand over            run             settle
//!   store ───────────▶ fetcher ─────────▶ hall ─────────▶ runner ─────────▶ desk ───────────▶ store
//!     ▲                   ▲ one per queue    one per place in `concurrency`   │  one flush at a time
//!     │                   └───── room freed ─────┘                            │
//!     └── renew: leases ◀───────────────────── ended ─────────────────────────┘
//! ```
//!
//! A [`Deliver`] says what happens between claim and settle: a worker runs a handler there, a relay sends. Nothing else differs. What is
//! cheaper [`Together`] is run by the hundred; each message of it is still settled for itself, as soon as its end is known.
//!
//! **Who is authoritative.** The store. What this process believes about a lease only ever makes it stop sooner: a message
//! whose lease may have lapsed is cancelled here before the store would hand it to somebody else, and whatever is settled
//! late is refused there by its token.
//!
//! **What is bounded.** A fetcher claims only when half of its queue's room is free, and not while the desk is full, so
//! that what is in hand never exceeds the rooms and the desk.
//!
//! **On failure.** A claim that fails is tried again, with pauses. A settlement that fails stays on the desk while its lease
//! lasts; then it is given up as lost, and the message comes again. It is never counted as done before the store said so. A
//! listener that fails leaves the polling, and comes back by itself. Each of these says so once, and once when it is
//! over.
//!
//! **On stop.** Fetchers end after the claim they are in; what nobody has begun is released; what runs may finish within the
//! deadline, less a fifth for the last settlements; what does not is cancelled and released; the desk is cleared.
//!
//! **Why it is not simpler.** Claiming and settling in the handler's task would be one loop less. It would cost a round trip for
//! each message and leave nobody to renew a lease.

mod alarm;
mod batch;
mod carrier;
mod delivery;
mod desk;
mod fetch;
mod gate;
mod hall;
mod idle;
mod leases;
mod listen;
mod meter;
pub(crate) mod pace;
mod run;
mod running;
pub(crate) mod signal;
mod subscription;
mod tally;
pub(crate) mod trouble;

pub use carrier::Carrier;
pub use delivery::Delivery;
pub use gate::{Gate, Passage};
pub use running::{Health, Running, Stopped};
pub use subscription::Subscription;
pub use tally::Tally;

use futures_util::future::BoxFuture;
use postrider_core::Settlement;
use std::{fmt::Debug, sync::Arc};

/// What happens between claim and settle.
pub trait Deliver: Debug + Send + Sync + 'static {
    /// Delivers one message and says how that ended. It may be dropped at any await: then the message is released, or
    /// [left](Self::leaves).
    fn deliver<'d>(&'d self, delivery: &'d Arc<Delivery>) -> BoxFuture<'d, Outcome>;

    /// Whether delivering this message settles it too, in the transaction of its effects.
    fn commits(&self, delivery: &Delivery) -> bool;

    /// Whether a delivery that was cut short counts, and is left to its lease, instead of being released.
    fn leaves(&self) -> bool;

    /// How messages that have no order are delivered many at a time, where that costs less than one by one.
    fn together(&self) -> Option<&dyn Together>;
}

/// Delivers many messages at once.
pub trait Together: Send + Sync {
    /// How many at the most.
    fn most(&self) -> usize;

    /// Delivers them and tells how each of them ended, by its place, as soon as that is known. It may be dropped at any await: then
    /// those of which nothing was told are released.
    fn deliver_all<'d>(&'d self, deliveries: &'d [Arc<Delivery>], tell: &'d Tell<'d>) -> BoxFuture<'d, ()>;
}

/// Hears how deliveries ended, some at a time.
pub type Tell<'t> = dyn Fn(Vec<(usize, Settlement)>) + Send + Sync + 't;

/// How a delivery ended.
#[derive(Debug)]
pub enum Outcome {
    /// It is to be settled like this.
    Settle(Settlement),
    /// It was settled like this already, in the transaction of its effects.
    Committed(Settlement),
    /// It belongs to somebody else, and its effects were undone.
    Lost,
    /// How it ended could not be written down. It is left as it is, and comes again when its lease has lapsed.
    Left,
}
