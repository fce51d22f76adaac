//! Benchmarks. Each stands beside the same work written by hand, in the same run, and is told as a ratio.

mod adapters;
mod cpu;
mod ground;
mod postgres;
mod report;
mod scenario;
mod side;
mod sqlite;
mod store;
mod turn;
mod wire;

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
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<()> {
    match Cli::parse().benchmark {
        Benchmark::Store(args) => store::run(&args).await,
    }
}
