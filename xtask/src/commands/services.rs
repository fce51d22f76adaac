//! `cargo xtask services`: the servers of the tests, until Ctrl-C.

use std::io::Write;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Result, bail};
use postrider_servers::Kind;

use crate::cluster::RunningServers;
use crate::commands::test::{self, programs};
use crate::options::Options;
use crate::scratch;
use crate::signals::Signals;
use crate::terminal::info;
use crate::version::Major;

const POLL: Duration = Duration::from_millis(100);

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Start only these servers: postgres, rabbitmq, nats, redis, kafka, sqs
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    only: Vec<Kind>,

    /// Start this major version of PostgreSQL
    #[arg(long, value_name = "VERSION")]
    postgres: Option<Major>,

    #[command(flatten)]
    options: Options,
}

/// Starts the servers and waits for a signal.
pub(crate) fn run(args: &Args, signals: &Signals) -> Result<u8> {
    let kinds = if args.only.is_empty() { Kind::ALL.to_vec() } else { args.only.clone() };
    if args.postgres.is_some() && !kinds.contains(&Kind::Postgres) {
        bail!("`--postgres` needs `postgres` in `--only`");
    }
    let rounds = test::rounds(&kinds, &[], args.postgres.as_slice(), args.options.missing())?;
    let cleanup = args.options.cleanup();
    let scratch = scratch::folder(cleanup);
    let Some(required) = rounds.first() else { bail!("no server to start") };
    let mut cluster = RunningServers::start(required, &scratch, cleanup, signals)?;
    for server in cluster.servers() {
        let (kind, version, folder) = (server.kind(), server.version(), server.folder().display());
        info(&format!(
            "{kind} {version} running: process {}, folder {folder}",
            server.id().unwrap_or_default()
        ));
    }
    info("press Ctrl-C to stop the servers");
    for (variable, value) in cluster.urls().chain(required.iter().map(programs)) {
        writeln!(std::io::stdout(), "export {variable}={value}")?;
    }
    std::io::stdout().flush()?;
    while signals.take().is_none() {
        cluster.check()?;
        sleep(POLL);
    }
    Ok(0)
}
