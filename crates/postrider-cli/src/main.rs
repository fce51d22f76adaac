//! The program `postrider`.
//!
//! Data goes to stdout, everything else to stderr. It ends with 0 when all is well, 1 when something failed or does not add
//! up, 2 when it was called wrongly, 3 when there are only warnings, 4 when what it was asked for is not there, and 130 when it was interrupted.

mod answer;
mod asking;
mod brokers;
mod canvas;
mod commands;
mod config;
mod database;
mod duration;
mod exit;
mod logs;
mod moment;
mod opened;
mod pace;
mod panic;
mod problem;
mod progress;
mod resolver;
mod shared;
mod signals;
mod source;
mod stager;
mod table;
mod traces;
mod transport;
mod words;

use clap::Parser;
use commands::Command;
use exit::Exit;
use problem::Problem;
use std::process::ExitCode;

/// Transactional outbox: a message is staged in your own transaction, then carried
#[derive(Debug, Parser)]
#[command(name = "postrider", version, arg_required_else_help = true)]
struct Postrider {
    #[command(subcommand)]
    command: Command,
}

fn main() -> ExitCode {
    panic::explain();
    // Ends with 2 by itself when it cannot read the arguments.
    let postrider = Postrider::parse();
    match run(postrider.command) {
        Ok(exit) => exit.into(),
        Err(problem) => {
            problem.tell();
            problem.exit().into()
        }
    }
}

fn run(command: Command) -> Result<Exit, Problem> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(|error| {
        Problem::new(format!("the program cannot start: {error}"), "free some memory and threads")
    })?;
    let exit = runtime.block_on(async {
        let signals = signals::listen()?;
        tokio::select! {
            exit = command.run(signals.first.clone()) => exit,
            () = signals.second.cancelled() => Ok(Exit::Interrupted),
        }
    });
    // Whoever still runs must not keep the user waiting.
    runtime.shutdown_background();
    exit
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_arguments_make_sense_to_clap() {
        Postrider::command().debug_assert();
    }
}
