//! `cargo xtask faults`: a long run of the relay's fault matrix.

use anyhow::Result;

use crate::commands::test::{self, RunOptions, Servers};
use crate::runner::Runner;
use crate::signals::Signals;
use crate::suites::Selection;

/// The variable with the number of cycles.
const CYCLES: &str = "POSTRIDER_FAULT_CYCLES";

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Kill each broker this many times; a cycle has 2,000 messages
    #[arg(long, default_value_t = 20, value_name = "NUMBER")]
    cycles: u32,

    /// Run only these brokers: http, rabbitmq, nats, redis, kafka, sqs
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    only: Vec<String>,

    #[command(flatten)]
    servers: Servers,
}

/// Runs the matrix and returns the exit code of the test runner.
pub(crate) fn run(args: &Args, signals: &Signals) -> Result<u8> {
    let runner = Runner::choose()?;
    let run_options = RunOptions {
        runner,
        extra: runner.long_run_arguments(),
        variables: vec![(CYCLES, args.cycles.to_string())],
    };
    test::run_selected(&Selection::faults(&args.only)?, &run_options, &args.servers, signals)
}
