//! The commands for contributors: `cargo xtask test | faults | soak | services | ci | bench | program`.
//!
//! Each command starts private servers on free ports of the loopback interface, and stops them by
//! process id before it ends. It never touches a server that the caller already runs.

mod cluster;
mod commands;
mod options;
mod packages;
mod postgres;
mod process;
mod runner;
mod scratch;
mod servers;
mod signals;
mod suites;
mod terminal;
mod tools;
mod version;
mod workspace;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

use crate::commands::{bench, ci, faults, program, services, soak, test};
use crate::signals::{Interrupted, Signals};

#[derive(Debug, Parser)]
#[command(bin_name = "cargo xtask", about = "Commands for contributors to Postrider", version)]
struct Xtask {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the tests against private servers
    Test(test::Args),
    /// Start the test servers, print their addresses and wait for Ctrl-C
    Services(services::Args),
    /// Run the relay's fault matrix for longer than the tests do
    Faults(faults::Args),
    /// Kill processes and servers for hours, and check that no message is lost or handled twice
    Soak(soak::Args),
    /// Check formatting, lints and documentation, then run the tests
    Ci(ci::Args),
    /// Run one benchmark against a durable PostgreSQL
    Bench(bench::Args),
    /// Measure the program: build time, size and start-up time
    Program(program::Args),
}

impl Command {
    fn run(self, signals: &Signals) -> Result<u8> {
        let outcome = match self {
            Self::Test(args) => test::run(&args, signals),
            Self::Services(args) => services::run(&args, signals),
            Self::Faults(args) => faults::run(&args, signals),
            Self::Soak(args) => soak::run(&args, signals),
            Self::Ci(args) => ci::run(args, signals),
            Self::Bench(args) => bench::run(&args, signals),
            Self::Program(args) => program::run(&args, signals),
        };
        // A child process that Ctrl-C ended as well fails first; the signal is the cause to report.
        outcome.map_err(|error| signals.take().map_or(error, |signal| Interrupted(signal).into()))
    }
}

fn main() -> ExitCode {
    let xtask = Xtask::parse();
    match Signals::install().and_then(|signals| xtask.command.run(&signals)) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            terminal::info(&format!("error: {error:#}"));
            ExitCode::from(error.downcast_ref().map_or(1, Interrupted::exit_code))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use postrider_testkit::documents;

    /// The commands run for minutes or run all tests, so they are only parsed here. CI runs `cargo xtask ci`.
    #[test]
    fn commands_in_documents_are_accepted() {
        let mut commands = documents::commands("cargo xtask");
        commands.extend(documents::commands("UPDATE_EXPECTED=1 cargo xtask"));
        assert!(commands.len() > 20, "only {} commands were found", commands.len());
        for command in commands {
            let arguments = command.words.iter().skip_while(|word| *word != "xtask");
            if arguments.clone().any(|word| word == "…") {
                continue;
            }
            if let Err(error) = Xtask::try_parse_from(arguments) {
                panic!("{command}\n{error}");
            }
        }
    }
}
