//! Benchmarks. Each is compared with the same work written by hand, in the same run, and reported as a ratio.

mod adapters;
mod backend;
mod consume;
mod cpu;
mod figure;
mod flat;
mod postgres;
mod relay;
mod report;
mod scenario;
mod side;
mod sqlite;
mod store;
mod turn;
mod wire;
mod worker;
mod workload;

use anyhow::Result;
use clap::{Parser, Subcommand};

#[derive(Debug, Parser)]
#[command(about)]
struct Cli {
    #[command(subcommand)]
    benchmark: Benchmark,
}

#[derive(Debug, Subcommand)]
enum Benchmark {
    /// Compare the stores and adapters with hand-written SQL: stage, claim and settle
    Store(store::Args),
    /// Compare the worker with the store's own claims and settlements: drain, retries, latency, memory, concurrent commits
    Worker(worker::Args),
    /// Compare a relay from PostgreSQL with the broker's client library, and measure an unavailable destination
    Relay(relay::Args),
    /// Compare a consumer with its inbox and without
    Consume(consume::Args),
    /// Run steady traffic for two minutes next to an open snapshot
    Flat(flat::Args),
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<()> {
    match Cli::parse().benchmark {
        Benchmark::Store(args) => store::run(&args).await,
        Benchmark::Worker(args) => worker::run(&args).await,
        Benchmark::Relay(args) => relay::run(&args).await,
        Benchmark::Consume(args) => consume::run(&args).await,
        Benchmark::Flat(args) => flat::run(&args).await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;
    use postrider_testkit::documents;

    /// `cargo xtask bench` passes its arguments on from the name of the benchmark.
    #[test]
    fn benchmarks_in_documents_are_accepted() {
        let names: Vec<String> =
            Cli::command().get_subcommands().map(|command| command.get_name().to_owned()).collect();
        let commands = documents::commands("cargo xtask bench");
        assert!(commands.len() > 10, "only {} commands were found", commands.len());
        for command in commands {
            let arguments = command.words.iter().skip_while(|word| !names.contains(word)).map(String::as_str);
            if let Err(error) = Cli::try_parse_from(["bench"].into_iter().chain(arguments)) {
                panic!("{command}\n{error}");
            }
        }
    }
}
