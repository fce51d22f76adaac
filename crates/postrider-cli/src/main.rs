//! The program `postrider`.
//!
//! Data goes to stdout, everything else to stderr. Exit codes: 0 success, 1 failure or failed check, 2 wrong arguments or input,
//! 3 warnings only, 4 not found, 130 interrupted.

mod alternate_screen;
mod brokers;
mod commands;
mod config;
mod confirm;
mod database;
mod duration;
mod exit;
mod format;
mod logs;
mod open_database;
mod output;
mod panic;
mod problem;
mod progress;
mod rate;
mod resolver;
mod shared;
mod signals;
mod source;
mod stager;
mod table;
mod timestamp;
mod traces;
mod transport;

use clap::Parser;
use commands::Command;
use exit::Exit;
use problem::Problem;
use std::process::ExitCode;

/// Transactional outbox, relay and inbox for PostgreSQL and SQLite
#[derive(Debug, Parser)]
#[command(name = "postrider", version, arg_required_else_help = true)]
struct Postrider {
    #[command(subcommand)]
    command: Command,
}

fn main() -> ExitCode {
    panic::install_hook();
    install_crypto_provider();
    // Exits with 2 if the arguments are invalid.
    let postrider = Postrider::parse();
    match run(postrider.command) {
        Ok(exit) => exit.into(),
        Err(problem) => {
            problem.print();
            problem.exit().into()
        }
    }
}

/// PostgreSQL's driver takes the provider of the process for `sslmode=verify-ca`. Every other connection has its own.
fn install_crypto_provider() {
    #[cfg(feature = "aws-lc-rs")]
    rustls::crypto::aws_lc_rs::default_provider().install_default().ok();
    #[cfg(all(feature = "ring", not(feature = "aws-lc-rs")))]
    rustls::crypto::ring::default_provider().install_default().ok();
}

fn run(command: Command) -> Result<Exit, Problem> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(|error| {
        Problem::new(format!("cannot start the async runtime: {error}"), "free memory and threads")
    })?;
    let exit = runtime.block_on(async {
        let signals = signals::listen()?;
        tokio::select! {
            exit = command.run(signals.first.clone()) => exit,
            () = signals.second.cancelled() => Ok(Exit::Interrupted),
        }
    });
    // Background tasks must not delay the exit.
    runtime.shutdown_background();
    exit
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn command_line_definition_is_valid() {
        Postrider::command().debug_assert();
    }
}
