//! Soak test: kills every process around Postrider for as long as it is told to, and checks that no message is lost, invented,
//! overtaken or handled twice.
//!
//! Producers, workers, relays and consumers run in processes of their own, which are killed and frozen. They use a primary with a
//! synchronous standby, a pooler and a broker, which crash, fail over and restart. The reference is a row that producers write in the
//! transaction that stages the message. A run has rounds: faults while messages flow, then the delivery of the rest, then the check.

mod database;
mod evidence;
mod fault;
mod goal;
mod journal;
mod processes;
mod progress;
mod role;
mod round;
mod run;
mod servers;
mod state;
mod task;
mod totals;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

#[derive(Debug, Parser)]
#[command(about, subcommand_negates_reqs = true)]
struct Cli {
    #[command(flatten)]
    args: run::Args,

    #[command(subcommand)]
    process: Option<ProcessCommand>,
}

#[derive(Debug, Subcommand)]
enum ProcessCommand {
    /// Run one of the processes that are killed
    #[command(hide = true)]
    Process {
        /// Its argument, as JSON
        args: String,
    },
}

/// The exit code of a run that failed before it could check its result.
const FAILED: u8 = 2;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> ExitCode {
    let cli = Cli::parse();
    let ended = match cli.process {
        Some(ProcessCommand::Process { args }) => role::start(&args).await.map(|()| true),
        None => run::run(&cli.args).await,
    };
    match ended {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(FAILED)
        }
    }
}
