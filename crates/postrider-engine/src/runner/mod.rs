//! What the four runners (worker, relay, consumer, saga runner) have in common.
//!
//! | method | returns | for |
//! |---|---|---|
//! | `start()` | [`Running`] | services with a shutdown of their own: `Running::stop(deadline)` returns [`Stopped`] |
//! | `run_until_signal(drain_timeout)` | [`Stopped`] | services: SIGINT or SIGTERM stops the runner gracefully |
//! | `run_until_idle()` | [`Report`] | tests and scheduled jobs: all messages that are due |
//! | `run_batch()` | [`Report`] | scheduled jobs with little time: one claim per queue, or one receive call |

mod report;
mod running;
mod signal;

pub use report::Report;
pub use running::{Health, Running, Stopped};

pub(crate) use running::{ReadReport, RunningTasks, run_until_signal};
