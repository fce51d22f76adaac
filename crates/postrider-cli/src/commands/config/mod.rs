//! `postrider config`: the file `postrider.toml`.

mod check;
mod init;
mod show;

use crate::{exit::Exit, problem::Problem};

const EXAMPLES: &str = "Examples:
  postrider config init                                    write a postrider.toml that runs as it is
  postrider config check --config /etc/postrider.toml      every problem with its line; connects to nobody
  postrider config show --origin                           what holds, and where each value comes from

A flag counts more than a variable of the environment, that more than the file, and the file more than the default.";

#[derive(Debug, clap::Subcommand)]
#[command(after_help = EXAMPLES)]
pub(crate) enum ConfigCommand {
    /// Write a postrider.toml with comments; one that is there is left alone
    Init(init::Args),
    /// Read the configuration and all that it refers to, and tell every problem
    Check(check::Args),
    /// Print what holds, without passwords
    Show(show::Args),
}

impl ConfigCommand {
    pub(crate) fn run(self) -> Result<Exit, Problem> {
        match self {
            Self::Init(args) => init::run(&args),
            Self::Check(args) => check::run(&args),
            Self::Show(args) => show::run(&args),
        }
    }
}

/// Tells all of them.
pub(crate) fn tell(problems: &[Problem]) -> Exit {
    problems.iter().for_each(Problem::tell);
    Exit::Failed
}
