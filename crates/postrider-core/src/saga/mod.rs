//! Sagas: several calls to others that succeed together, or are made good. The pure half: what is to be done next, and why.
//!
//! A saga follows a declared [`Plan`]: compensatable steps, then at most one pivot, then retryable steps. Each is a follow-up, made by a
//! resolver. What became of it is an [`Entry`] in the saga's log, which is appended to and never changed. One function, [`transition`],
//! leads from a [`State`] and an entry to the next state; the state alone says which call has to be under way ([`State::pending`]).
//!
//! ```text
//!                    done: the next step
//!                        ╭────────╮
//!           begun        ▼        │     done: the last step
//!   new ─────────────▶ forward ───┴────────────────────────────▶ completed
//!                     │  │  ▲ │                                      ▲
//!                     │  │  │ │ stuck (retryable)                    │ done: the last step
//!                     │  │  │ ╰────────────────────▶ stuck forward ───╯
//!     failed          │  │  ╰───────────────────────────╯
//!    (compensatable   │  │     unstuck; done: the next step
//!     or pivot)       │  │
//!                     │  │ unknown (compensatable or pivot)
//!                     │  ╰─────────────▶ in doubt ──────────▶ forward, or completed
//!                     │                     │     resolved: it happened; or done
//!                     │                     │
//!                     ▼                     │ resolved: it did not happen
//!        ╭───────▶ backward ◀───────────────╯
//!        │            │ │ ▲                     (with nothing to undo: compensated at once)
//!        ╰────────────╯ │ ╰─────────────────╮ unstuck; undone: the one before
//!     undone:           ├───────────────▶ stuck backward
//!     the one before    │    stuck            │
//!                       │ undone: the first   │ undone: the first
//!                       ╰─────────────────────┴────────────────▶ compensated
//! ```
//!
//! **The point of no return** lies behind the last step that is not retryable: behind the pivot, or, in a plan without one, behind the last
//! compensatable step ([`Plan::point_of_no_return`]). Retryable steps are repeated until they succeed, so once only they are left nothing
//! can call for going back. A plan of retryable steps alone only ever goes forward. So the last step before that point is never undone:
//! declared as the pivot it needs no way to be, and declared as compensatable it has one that is used only if the plan grows.
//!
//! **Who is authoritative.** The log, and nobody's memory. A runner holds the saga's lock, folds the log ([`replay`]), asks for the
//! transition, and appends the entry and stages the follow-up of the new state in one transaction. Who crashes before that commits has
//! changed nothing; who crashes after it has left a follow-up that somebody else runs. A call's identity is derived from its saga
//! ([`Command::follow_up_id`]), so staging it again is staging it once, and calling again shows the other side the same idempotency key.
//!
//! **What fails, and where it ends.**
//!
//! | what happens | entry | then |
//! |---|---|---|
//! | a compensatable step or the pivot has no effect, for certain | `failed` | what succeeded is undone, in reverse; nothing succeeded: compensated at once |
//! | nobody knows whether it had its effect | `unknown` | nothing is called, and above all nothing undone, until somebody knows |
//! | somebody looked it up | `resolved` | forward if it happened, backward if not |
//! | a retryable step fails, or its outcome is unknown | none: it is tried again under its identity | |
//! | it is given up | `stuck` | it waits for a hand; nothing is undone |
//! | an undoing fails, or its outcome is unknown | none: it is tried again under its identity | |
//! | it is given up | `stuck` | it waits for a hand; what comes before it is not undone out of turn |
//! | somebody puts it back | `unstuck` | it is called again |
//! | somebody did it by hand, or its answer came late | `done`, `undone` | as if it had never been stuck or in doubt |
//! | a runner crashed between effect and entry | the same entry once more | [`Outcome::Repeated`]: nothing |
//! | an entry contradicts the log, or comes out of turn | refused | [`Refused::Illegal`]: nothing, loudly |
//! | the plan was changed while sagas ran | refused | [`Refused::OtherPlan`]: nothing, loudly |
//!
//! **Evidence is not symmetric.** That a call succeeded proves that its effect is there, whenever that is learnt: `done` ends a doubt. That one
//! attempt had no effect proves nothing about those before it: `failed` does not end a doubt, only an answer to the question does
//! (`resolved`). For the same reason a runner that tries a call more than once may write `failed` only if no attempt was ambiguous. A call
//! in doubt may be made again under its identity without an entry: it can only end the doubt with a success.
//!
//! **Repeated or illegal.** An entry is repeated if it may be in the log of this state already, and illegal if no log that leads here can hold
//! it. So the function needs no more than the state: for example `done` of an earlier step is repeated, `failed` of an earlier step is
//! illegal, and `failed` of the step that made the saga turn is repeated. Two operators with the same answer to a doubt are no harm, and the
//! second of two with different answers is refused.
//!
//! **Why it is not simpler.** Forward and backward could be one state with a list of flags, one for each step; then most lists would mean
//! nothing, and somebody would have to say what happens in them. Here every state means something. `Backward` and `Compensated` carry the
//! step that failed, because without it an entry that says that this step succeeded after all would look like a harmless repetition:
//! an effect that nobody undoes. Doubt is a state and not a failure, because undoing what was not done and leaving what was are both wrong,
//! and only a look at the other side tells which it would be.

mod command;
mod entry;
mod log;
mod part;
mod plan;
mod replay;
mod state;
mod step;
mod transition;

pub use command::{Act, Command};
pub use entry::Entry;
pub use log::{SagaLog, read, written};
pub use part::{Part, RESOLVER};
pub use plan::{Fingerprint, MOST_STEPS, Plan, PlanBuilder};
pub use replay::{Unreadable, replay};
pub use state::State;
pub use step::{Call, Kind, Step, Undoable};
pub use transition::{Outcome, Refused, transition};

#[cfg(test)]
mod tests;
