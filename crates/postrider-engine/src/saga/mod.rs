//! Follow-ups: calls to others that always end in a known state.
//!
//! ```text
//!                          ┌──────────── failed: again after 30, 60, 120 … 3600 s ──────────────┐
//!                          ▼                                                                    │
//!   stage ──▶ pending ──▶ in flight ──┬── done, or nothing left to do ──▶ succeeded ──▶ last of its subject? ──▶ completed
//!                ▲         ▲   │      │
//!                │         │   │      ├── not before a time ──▶ scheduled ──▶ asked again then
//!                │         └───┘      │
//!                │    lease lapses    └── refused, unknown, or tried 8 times ──▶ abandoned ──▶ hook, dead letter
//!                └───────────────────────────────── requeue ─────────────────────────┘
//! ```
//!
//! A follow-up is a message and is carried by the loop that carries all messages ([`carry`](crate::carry)): this module is what happens
//! between claim and settle.
//!
//! **Who is authoritative.** The store. An outcome is written under the token of the claim, so that a runner which was slow, and whose
//! follow-up somebody else has taken since, changes nothing. The claim is the attempt: what kills its runner every time is given up, too.
//!
//! **The ledger comes first.** Every outcome has its event before it is so. In the store's own ledger the event is written in the
//! transaction of the outcome, and neither is there without the other. Another sink is asked before that transaction begins; if it does
//! not answer, the follow-up stays leased, and is carried out again when the lease has lapsed. Then the ledger may tell twice what happened
//! once, and never misses anything. Failures that are tried again are not told.
//!
//! **Completion.** Whoever lands a follow-up holds the lock of its subject and operation until the commit. So of two that land the last
//! two, the second sees the first, and exactly one of them is told that it was the last. What `on_complete` writes and stages commits with
//! it. One that was given up keeps its subject open, until somebody requeues it.
//!
//! **On failure.** What cannot be written down is left to its lease: the call is repeated, under the same idempotency key. A runner that is
//! stopped leaves what it had begun to the lease as well, since nobody knows what became of the call.
//!
//! **Why it is not simpler.** Settling successes together, as a worker does, would save commits. But a completion belongs to one
//! transaction with one callback, and calls to others cost far more than a commit.

mod backoff;
mod books;
mod completion;
mod courier;
mod course;
mod doubt;
mod office;
mod plot;
mod requeue;
mod resolver;
mod runner;

pub use backoff::Backoff;
pub use completion::{Completed, Ended};
pub use courier::Abandoned;
pub use doubt::Unresolved;
pub use requeue::{Requeued, Unrequeued, requeue};
pub use resolver::{Call, Resolved, Resolver};
pub use runner::{SagaRunner, SagaRunnerBuilder};
