//! One module per subcommand.

mod audit;
mod bench;
mod check;
mod completions;
mod config;
mod dev;
mod doctor;
mod gc;
mod keys;
mod messages;
mod migrate;
mod pause;
mod publish;
mod replay;
mod run;
mod saga;
mod status;
mod tail;
mod timers;
mod top;

use crate::{Postrider, exit::Exit, problem::Problem};
use clap::CommandFactory;
use tokio_util::sync::CancellationToken;

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Run a small shop and watch its events being carried; needs nothing installed
    Dev(dev::Args),
    /// Carry what is staged, as postrider.toml says, until it is stopped
    Run(run::Args),
    /// Write, check and show postrider.toml
    #[command(subcommand)]
    Config(config::ConfigCommand),
    /// What operators did, and the ledger of what became of follow-ups
    #[command(subcommand)]
    Audit(audit::Audit),
    /// Make the tables, or tell whether they are what this version needs
    #[command(subcommand)]
    Migrate(migrate::Migrate),
    /// What each queue holds, how far it lags behind, and what needs a hand
    Status(status::Args),
    /// The same live, as long as somebody looks
    Top(top::Args),
    /// Look everything over: what is wrong, and the statement or command that mends it
    Doctor(doctor::Args),
    /// Compare lag, dead letters and blocked keys with limits, for a monitoring system
    Check(check::Args),
    /// What failed for good: count it, look at it, put it back or remove it
    #[command(subcommand)]
    Dead(messages::DeadLetters),
    /// Look at messages, and remove them
    #[command(subcommand)]
    Messages(messages::Messages),
    /// List the keys that do not run, and let them run again
    #[command(subcommand)]
    Keys(keys::Keys),
    /// Let a queue or a destination wait
    Pause(pause::Args),
    /// Let it go on
    Resume(pause::Args),
    /// What is paused, since when, by whom and why
    Paused(pause::ListArgs),
    /// Watch what happens to messages, as it happens
    Tail(tail::Args),
    /// List named timers, and cancel them
    #[command(subcommand)]
    Timers(timers::Timers),
    /// Stage one message
    Publish(publish::Args),
    /// Deliver what a queue keeps once more: to it, to another queue, or to a destination
    Replay(replay::Args),
    /// How many follow-ups there are, and which need a hand
    #[command(subcommand)]
    Saga(saga::Saga),
    /// Measure how fast messages are staged and carried here
    Bench(bench::Args),
    /// Remove what may go now: kept messages, marks of the inbox, old audit rows
    Gc(gc::Args),
    /// Print what completes the arguments in a shell
    Completions(completions::Completions),
    /// Print the manual
    Man(completions::Man),
}

impl Command {
    /// Runs it until its end, or until `stop` asks it to end well.
    pub(crate) async fn run(self, stop: CancellationToken) -> Result<Exit, Problem> {
        match self {
            Self::Dev(args) => dev::run(args, stop).await,
            Self::Run(args) => run::run(args, stop).await,
            Self::Config(command) => command.run(),
            Self::Audit(audit) => audit.run(stop).await,
            Self::Migrate(migrate) => migrate.run(stop).await,
            Self::Status(args) => status::run(args, stop).await,
            Self::Top(args) => top::run(args, stop).await,
            Self::Doctor(args) => doctor::run(args, stop).await,
            Self::Check(args) => check::run(args, stop).await,
            Self::Dead(dead) => dead.run(stop).await,
            Self::Messages(messages) => messages.run(stop).await,
            Self::Keys(keys) => keys.run(stop).await,
            Self::Pause(args) => pause::pause(args).await,
            Self::Resume(args) => pause::resume(args).await,
            Self::Paused(args) => pause::paused(args, stop).await,
            Self::Tail(args) => tail::run(args, stop).await,
            Self::Timers(timers) => timers.run(stop).await,
            Self::Publish(args) => publish::run(args, stop).await,
            Self::Replay(args) => replay::run(args, stop).await,
            Self::Saga(saga) => saga.run(stop).await,
            Self::Bench(args) => bench::run(args, stop).await,
            Self::Gc(args) => gc::run(args, stop).await,
            Self::Completions(args) => completions::completions(&args, Postrider::command()),
            Self::Man(args) => completions::man(&args, Postrider::command()),
        }
    }
}
