//! Everything a contributor of Postrider runs: `cargo xtask test | faults | services | ci | bench | program`.
//!
//! Each command starts the servers it needs, private to it, on free ports of the loopback
//! interface, and stops them by process id before it ends. What the caller already runs is never
//! touched.

mod commands;
mod fleet;
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

use crate::commands::{bench, ci, faults, program, services, test};
use crate::signals::{Interrupted, Signals};

#[derive(Debug, Parser)]
#[command(bin_name = "cargo xtask", about = "Everything a contributor of Postrider runs", version)]
struct Xtask {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Start private servers, run the tests against them, stop them
    Test(test::Args),
    /// Start the test servers, print their addresses, wait for Ctrl-C
    Services(services::Args),
    /// Run the fault matrix of the relay, for longer than the tests do
    Faults(faults::Args),
    /// Formatting, lints, documentation, then the tests
    Ci(ci::Args),
    /// Start a durable PostgreSQL and run one benchmark against it
    Bench(bench::Args),
    /// Build the program as users do, and tell how long that takes, how large it is and how soon it is at work
    Program(program::Args),
}

impl Command {
    fn run(self, signals: &Signals) -> Result<u8> {
        let outcome = match self {
            Self::Test(args) => test::run(&args, signals),
            Self::Services(args) => services::run(&args, signals),
            Self::Faults(args) => faults::run(&args, signals),
            Self::Ci(args) => ci::run(args, signals),
            Self::Bench(args) => bench::run(&args, signals),
            Self::Program(args) => program::run(&args, signals),
        };
        // A helper that Ctrl-C ended too fails first; the signal is the reason to report.
        outcome.map_err(|error| signals.take().map_or(error, |signal| Interrupted(signal).into()))
    }
}

fn main() -> ExitCode {
    let xtask = Xtask::parse();
    match Signals::install().and_then(|signals| xtask.command.run(&signals)) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            terminal::say(&format!("error: {error:#}"));
            ExitCode::from(error.downcast_ref().map_or(1, Interrupted::exit_code))
        }
    }
}
