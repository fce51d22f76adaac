//! Benchmarks. Each stands beside the same work written by hand, in the same run, and is told as a ratio.

mod adapters;
mod consume;
mod cpu;
mod extent;
mod figure;
mod flat;
mod ground;
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
    /// The stores and the adapters beside hand-written SQL: staging, claiming and settling
    Store(store::Args),
    /// The worker beside the store's own claims and settlements: draining, retries, latency, memory, committers beside it
    Worker(worker::Args),
    /// A relay from PostgreSQL beside the client library of the same broker, and beside a destination that is dead
    Relay(relay::Args),
    /// A consumer with its inbox beside the same one without
    Consume(consume::Args),
    /// Two minutes of steady traffic while somebody holds a snapshot open
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
