//! `cargo xtask faults`: the relay's fault matrix, for longer than the tests run it.

use anyhow::Result;

use crate::commands::test::{self, How, Servers};
use crate::runner::Runner;
use crate::signals::Signals;
use crate::suites::Selection;

/// How the matrix is told how long it lasts.
const CYCLES: &str = "POSTRIDER_FAULT_CYCLES";

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How often each broker is killed; there are 2,000 messages in a cycle
    #[arg(long, default_value_t = 20, value_name = "NUMBER")]
    cycles: u32,

    /// Only these brokers: http, rabbitmq, nats, redis, kafka, sqs
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    only: Vec<String>,

    #[command(flatten)]
    servers: Servers,
}

/// Runs the matrix; the result is the runner's exit code.
pub(crate) fn run(args: &Args, signals: &Signals) -> Result<u8> {
    let runner = Runner::choose()?;
    let how = How { runner, extra: runner.patiently(), variables: vec![(CYCLES, args.cycles.to_string())] };
    test::run_selected(&Selection::faults(&args.only)?, &how, &args.servers, signals)
}
