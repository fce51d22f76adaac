//! One module per subcommand.

mod audit;
mod config;
mod dev;
mod run;

use crate::{exit::Exit, problem::Problem};
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
    /// Look after the ledger of what became of follow-ups
    #[command(subcommand)]
    Audit(audit::Audit),
}

impl Command {
    /// Runs it until its end, or until `stop` asks it to end well.
    pub(crate) async fn run(self, stop: CancellationToken) -> Result<Exit, Problem> {
        match self {
            Self::Dev(args) => dev::run(args, stop).await,
            Self::Run(args) => run::run(args, stop).await,
            Self::Config(command) => command.run(),
            Self::Audit(audit) => audit.run(stop).await,
        }
    }
}
