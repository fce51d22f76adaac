//! Follow-ups: calls to external systems that always end in a known state.
//!
//! ```text
//!                          ┌──────────── failed: retried after 30, 60, 120 … 3600 s ────────────┐
//!                          ▼                                                                    │
//!   stage ──▶ pending ──▶ in flight ──┬── done, or nothing left to do ──▶ succeeded ──▶ last of its subject? ──▶ completed
//!                ▲         ▲   │      │
//!                │         │   │      ├── not before a time ──▶ scheduled ──▶ called again then
//!                │         └───┘      │
//!                │   lease expires    └── rejected, unknown, or 8 attempts ──▶ abandoned ──▶ hook, dead letter
//!                └───────────────────────────────── requeue ─────────────────────────┘
//! ```
//!
//! A follow-up is a message, and the shared delivery loop ([`delivery_loop`](crate::delivery_loop)) delivers it: this module is
//! the step between claim and settle.
//!
//! **Who is authoritative.** The store. An outcome is recorded under the token of the claim, so that a slow runner, whose
//! follow-up another runner has claimed since, changes nothing. The claim is the attempt: a follow-up that kills its runner
//! every time is abandoned, too.
//!
//! **The ledger comes first.** Every outcome has its audit event before it takes effect. In the store's own ledger the event is
//! written in the transaction of the outcome, and neither exists without the other. Another sink is written before that
//! transaction begins; if it does not answer, the follow-up stays leased, and its call is repeated when the lease expires. Then
//! the ledger may contain an event twice, and never misses one. Failures that are retried have no event.
//!
//! **Completion.** A runner that records a success holds the lock of its subject and operation until the commit. So of two that
//! record the last two, the second sees the first, and exactly one of them is the last. The writes and staged messages of
//! `on_complete` commit with it. An abandoned follow-up keeps its subject open, until an operator requeues it.
//!
//! **On failure.** A follow-up whose outcome cannot be recorded stays leased: the call is repeated, under the same idempotency
//! key. A runner that is stopped leaves its started calls to their leases as well, since their outcome is unknown.
//!
//! **Why it is not simpler.** Settling successes in batches, as a worker does, would save commits. But a completion belongs to
//! one transaction with one callback, and external calls cost far more than a commit.

mod admin;
mod advance;
mod audit;
mod backoff;
mod completion;
mod deliver;
mod requeue;
mod resolve_doubt;
mod resolver;
mod runner;
mod step;

pub use backoff::SagaBackoff;
pub use completion::{Completion, CompletionOutcome};
pub use deliver::Abandonment;
pub use requeue::{RequeueError, RequeueReport, requeue};
pub use resolve_doubt::ResolveError;
pub use resolver::{Resolution, Resolver, ResolverCall};
pub use runner::{SagaRunner, SagaRunnerBuilder};
