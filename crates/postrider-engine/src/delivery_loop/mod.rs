//! The delivery loop that workers, relays and saga runners share: claim → dispatch → deliver → settle.
//!
//! ```text
//!           claim              dispatch               deliver             buffer                   settle
//!   store ───────────▶ claimer ─────────▶ dispatcher ─────────▶ executor ─────────▶ settle buffer ─────────▶ store
//!     ▲                   ▲ one per queue                 one per slot of `concurrency`   │ one flush at a time
//!     │                   └── capacity freed ──────────────────────┘                      │
//!     └── renew ◀── lease registry ◀────── settled: no longer renewed ────────────────────┘
//! ```
//!
//! A [`Deliver`] implements the step between claim and settle: a worker runs a handler, a relay publishes. Nothing else
//! differs. A [`BatchDeliver`] delivers hundreds of messages at once; each of them is still settled by itself, as soon as its
//! outcome is known.
//!
//! **Who is authoritative.** The store. The local view of a lease only ever makes this process stop sooner: a message whose
//! lease may have expired is cancelled here before the store leases it to another worker, and the store rejects a late
//! settlement by its token.
//!
//! **What is bounded.** A claimer claims only when half of its queue's capacity is free, and not while the settle buffer is
//! full, so the number of messages in flight never exceeds the capacities and the buffer.
//!
//! **On failure.** A claim that fails is retried with backoff. A settlement that fails stays in the buffer while its lease
//! lasts; then it is given up as lost, and the message is redelivered. It is never counted as done before the store confirmed
//! it. A listener that fails falls back to polling, and reconnects by itself. Each of these is logged once, and once when it is
//! resolved.
//!
//! **On stop (graceful shutdown).** Claimers end after the claim they are in; messages that were not started are released;
//! running deliveries may finish within 80 % of the drain timeout (the rest is reserved for the last settlements); the others are cancelled and
//! released; the settle buffer is flushed.
//!
//! **Why it is not simpler.** Claiming and settling in the handler's task would be one loop less. It would cost a round trip
//! for each message, and no task would be left to renew a lease.

pub(crate) mod backoff;
mod circuit_gate;
mod claimer;
mod delivery;
mod dispatcher;
mod engine;
mod executor;
mod idle;
mod idle_detector;
mod leases;
mod listen_loop;
mod metrics;
pub(crate) mod rate_limiter;
mod settle_buffer;
pub(crate) mod store_outage;
mod subscription;
mod tasks;
mod wakeup;

pub use circuit_gate::{CircuitGate, ClaimPermit};
pub use delivery::Delivery;
pub use engine::DeliveryEngine;
pub(crate) use subscription::MAX_BYTES_IN_FLIGHT;
pub use subscription::Subscription;

use futures_util::future::BoxFuture;
use postrider_core::Settlement;
use std::{fmt::Debug, sync::Arc};

/// The step between claim and settle.
pub trait Deliver: Debug + Send + Sync + 'static {
    /// Delivers one message and returns its outcome. The future may be dropped at any await: then the message is released,
    /// or [left to its lease](Self::keeps_lease_when_cancelled).
    fn deliver<'d>(&'d self, delivery: &'d Arc<Delivery>) -> BoxFuture<'d, Outcome>;

    /// Whether delivering this message also settles it, in the transaction of its effects.
    fn settles_itself(&self, delivery: &Delivery) -> bool;

    /// Whether a cancelled delivery counts as an attempt: the message waits until its lease expires, instead of being
    /// released.
    fn keeps_lease_when_cancelled(&self) -> bool;

    /// Batch delivery of unordered messages, where that costs less than one by one.
    fn as_batch(&self) -> Option<&dyn BatchDeliver>;
}

/// Delivers many messages at once.
pub trait BatchDeliver: Send + Sync {
    /// The maximum batch size.
    fn max_batch(&self) -> usize;

    /// Delivers the messages and reports the settlement of each, by its index, as soon as it is known. The future may be
    /// dropped at any await: then the messages that were not reported are released.
    fn deliver_all<'d>(
        &'d self,
        deliveries: &'d [Arc<Delivery>],
        report: &'d ReportSettlements<'d>,
    ) -> BoxFuture<'d, ()>;
}

/// Receives settlements of a batch, by index, some at a time.
pub type ReportSettlements<'t> = dyn Fn(Vec<(usize, Settlement)>) + Send + Sync + 't;

/// The outcome of a delivery.
#[derive(Debug)]
pub enum Outcome {
    /// Settle it like this.
    Settle(Settlement),
    /// It was settled like this already, in the transaction of its effects.
    Committed(Settlement),
    /// The lease was lost, and the effects were rolled back.
    Lost,
    /// The outcome could not be recorded. The message stays leased and is redelivered when its lease expires.
    LeftToLease,
}
