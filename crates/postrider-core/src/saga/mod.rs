//! Sagas: several external calls that succeed together or are compensated. This is the pure half: the plan, the state machine and the
//! log.
//!
//! A saga follows a declared [`Plan`]: compensatable steps, then at most one pivot, then retryable steps. Each step is a
//! follow-up, executed by a resolver. Its outcome is a [`LogEntry`] in the saga's append-only log. One function, [`transition`], leads from
//! a [`SagaState`] and an entry to the next state; the state alone determines which call must be in progress ([`SagaState::pending`]).
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
//! compensatable step ([`Plan::point_of_no_return`]). Retryable steps are repeated until they succeed, so once only they are left no
//! compensation can become necessary. A plan of retryable steps only goes forward. The last step before that point is never compensated:
//! as the pivot it needs no compensation, and as a compensatable step it has one that is used only if the plan grows.
//!
//! **The log is authoritative**, not the memory of a process. A runner holds the saga's lock, folds the log ([`replay`]), computes the
//! transition, and appends the entry and stages the follow-up of the new state in one transaction. A runner that crashes before the
//! commit has changed nothing; one that crashes after it has left a follow-up that another runner claims. The id of a call is derived
//! from its saga ([`Command::follow_up_id`]), so staging it again changes nothing, and repeating the call uses the same idempotency key.
//!
//! **Failures.**
//!
//! | event | entry | consequence |
//! |---|---|---|
//! | a compensatable step or the pivot certainly had no effect | `failed` | completed steps are compensated in reverse; if there are none: compensated at once |
//! | the outcome of a step is unknown | `unknown` | no call is made, above all no compensation, until the outcome is known |
//! | an operator or the resolver found out | `resolved` | forward if it happened, backward if not |
//! | a retryable step fails, or its outcome is unknown | none: it is retried under its id | |
//! | it is abandoned | `stuck` | manual intervention; nothing is compensated |
//! | a compensation fails, or its outcome is unknown | none: it is retried under its id | |
//! | it is abandoned | `stuck` | manual intervention; earlier steps are not compensated out of order |
//! | an operator requeues it | `unstuck` | it is called again |
//! | it was done manually, or its reply came late | `done`, `undone` | as if it had never been stuck or in doubt |
//! | a runner crashed between effect and entry | the same entry once more | [`Transition::Repeated`]: no change |
//! | an entry contradicts the log, or is out of order | rejected | [`TransitionError::Illegal`]: no change, logged as an error |
//! | the plan was changed while sagas ran | rejected | [`TransitionError::OtherPlan`]: no change, logged as an error |
//!
//! **Evidence is not symmetric.** A success proves that the effect happened, however late it is learnt: `done` ends a doubt. An attempt
//! without effect proves nothing about the attempts before it: `failed` does not end a doubt, only `resolved` does. For the same reason
//! a runner that attempts a call more than once may write `failed` only if no attempt was ambiguous. A call in doubt may be repeated
//! under its id without an entry: it can end the doubt only by succeeding.
//!
//! **Repeated or illegal.** An entry is repeated if the log of this state may have it already, and illegal if no log that leads here can
//! have it. So the function needs only the state: for example `done` of an earlier step is repeated, `failed` of an earlier step is
//! illegal, and `failed` of the step that started the compensation is repeated. Two operators who resolve a doubt in the same way do no
//! harm; the second of two who disagree is rejected.
//!
//! **Why it is not simpler.** Forward and backward could be one state with a flag for each step; most combinations would be meaningless,
//! and each would need a definition. Here every state has a meaning. `Backward` and `Compensated` carry the failed step, because without
//! it a late `done` of that step would look like a harmless repetition, and its effect would never be compensated. Doubt is a state and
//! not a failure, because compensating a step that did not happen and leaving one that did are both wrong, and only the resolver knows
//! which it is.

mod command;
mod entry;
mod log;
mod part;
mod plan;
mod replay;
mod state;
mod step;
mod transition;

pub use command::{Command, CommandKind};
pub use entry::LogEntry;
pub use log::{read, written};
pub use part::{Part, RESOLVER};
pub use plan::{Fingerprint, MOST_STEPS, Plan, PlanBuilder};
pub use replay::{ReplayError, replay};
pub use state::SagaState;
pub use step::{Step, StepCall, StepKind, Undoable};
pub use transition::{Transition, TransitionError, transition};

#[cfg(test)]
mod tests;
