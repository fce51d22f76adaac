//! `postrider config`: the file `postrider.toml`.

mod check;
mod init;
mod show;

use crate::{exit::Exit, problem::Problem};

#[derive(Debug, clap::Subcommand)]
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
    problems.iter().for_each(|problem| eprintln!("{problem}"));
    Exit::Failed
}
