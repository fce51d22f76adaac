//! One module per subcommand.

mod audit;
mod completions;
mod config;
mod dev;
mod keys;
mod messages;
mod migrate;
mod publish;
mod run;
mod saga;
mod status;

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
    /// What failed for good: count it, look at it, put it back or remove it
    #[command(subcommand)]
    Dead(messages::DeadLetters),
    /// Look at messages, and remove them
    #[command(subcommand)]
    Messages(messages::Messages),
    /// List the keys that do not run, and let them run again
    #[command(subcommand)]
    Keys(keys::Keys),
    /// Stage one message
    Publish(publish::Args),
    /// How many follow-ups there are, and which need a hand
    #[command(subcommand)]
    Saga(saga::Saga),
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
            Self::Dead(dead) => dead.run(stop).await,
            Self::Messages(messages) => messages.run(stop).await,
            Self::Keys(keys) => keys.run(stop).await,
            Self::Publish(args) => publish::run(args, stop).await,
            Self::Saga(saga) => saga.run(stop).await,
            Self::Completions(args) => completions::completions(&args, Postrider::command()),
            Self::Man(args) => completions::man(&args, Postrider::command()),
        }
    }
}
