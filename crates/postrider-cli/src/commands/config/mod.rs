//! `postrider config`: the file `postrider.toml`.

mod check;
mod init;
mod schema;
mod show;

use crate::{exit::Exit, problem::Problem};

const EXAMPLES: &str = "Examples:
  postrider config init            write a postrider.toml that works as it is
  postrider config check --config /etc/postrider.toml
                                   report every problem with its line
  postrider config show --origin   print the effective values and their origin
  postrider config schema > postrider.schema.json
                                   completion and checks in editors

Precedence: flags, environment variables, file, defaults.";

#[derive(Debug, clap::Subcommand)]
#[command(after_help = EXAMPLES)]
pub(crate) enum ConfigCommand {
    /// Write a commented postrider.toml; never overwrites a file
    Init(init::Args),
    /// Validate the configuration and everything it refers to
    Check(check::Args),
    /// Print the effective configuration, without secrets
    Show(show::Args),
    /// Print the JSON Schema of postrider.toml, for editors
    Schema(schema::Args),
}

impl ConfigCommand {
    pub(crate) fn run(self) -> Result<Exit, Problem> {
        match self {
            Self::Init(args) => init::run(&args),
            Self::Check(args) => check::run(&args),
            Self::Show(args) => show::run(&args),
            Self::Schema(_) => schema::run(),
        }
    }
}

/// Prints all problems.
pub(crate) fn print_problems(problems: &[Problem]) -> Exit {
    problems.iter().for_each(Problem::print);
    Exit::Failed
}
