//! The processes that are killed: this program, started again in one of these roles.

mod consumer;
mod producer;
mod relay;
mod worker;

pub(crate) use worker::declare;

use crate::{
    database::{Address, Database},
    task::Defect,
};
use anyhow::{Result, ensure};
use postrider_core::RetryStrategy;
use postrider_engine::Stopped;
use postrider_testkit::process::exit_with_parent;
use serde::{Deserialize, Serialize};
use std::{io::stderr, path::PathBuf, time::Duration};
use tokio::time::sleep;
use tracing_subscriber::filter::LevelFilter;

/// The leases of workers and relays, and the ack deadline of the broker. A frozen process is frozen for longer.
pub(crate) const LEASE: Duration = Duration::from_secs(2);
/// The limit of a graceful shutdown.
pub(crate) const DRAIN_TIMEOUT: Duration = Duration::from_secs(30);
/// The stream of relayed messages, its subject, and its consumer.
pub(crate) const STREAM: &str = "SOAK";
pub(crate) const SUBJECT: &str = "soak";
pub(crate) const CONSUMER: &str = "soak";

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Role {
    Producer,
    Worker,
    Relay,
    Consumer,
}

/// The argument of a process.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct ProcessArgs {
    pub(crate) role: Role,
    pub(crate) address: Address,
    pub(crate) broker: String,
    pub(crate) journal: PathBuf,
    pub(crate) seed: u64,
    pub(crate) defects: Vec<Defect>,
}

impl ProcessArgs {
    fn has(&self, defect: Defect) -> bool {
        self.defects.contains(&defect)
    }
}

impl Role {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Producer => "producer",
            Self::Worker => "worker",
            Self::Relay => "relay",
            Self::Consumer => "consumer",
        }
    }
}

/// Runs in the role of the argument until the process is stopped or killed.
pub(crate) async fn start(args: &str) -> Result<()> {
    exit_with_parent();
    tracing_subscriber::fmt().with_max_level(LevelFilter::WARN).with_ansi(false).with_writer(stderr).init();
    let args: ProcessArgs = serde_json::from_str(args)?;
    let database = open(&args.address).await;
    let stopped = match args.role {
        Role::Producer => return producer::run(&database, &args).await,
        Role::Worker => worker::run(&database, &args).await?,
        Role::Relay => relay::run(&database, &args).await?,
        Role::Consumer => consumer::run(&database, &args).await?,
    };
    check(stopped)
}

/// Waits for a server that is down: another fault may have hit it while this process started.
async fn open(address: &Address) -> Database {
    loop {
        match Database::open(address).await {
            Ok(database) => return database,
            Err(error) => eprintln!("the database is unavailable: {error:#}"),
        }
        sleep(Duration::from_millis(50)).await;
    }
}

fn check(stopped: Stopped) -> Result<()> {
    ensure!(stopped.clean, "messages were in flight after the drain timeout");
    Ok(())
}

/// Ten failures in a row are no accident, whichever servers are down.
fn retry() -> RetryStrategy {
    RetryStrategy::constant(Duration::from_millis(50)).with_max_attempts(10)
}
