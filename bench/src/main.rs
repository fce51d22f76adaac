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
