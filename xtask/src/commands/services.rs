//! `cargo xtask services`: the servers of the tests, for as long as somebody needs them.

use std::io::Write;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Result, bail};
use postrider_servers::Kind;

use crate::commands::test::{self, programs};
use crate::fleet::Fleet;
use crate::options::Options;
use crate::scratch;
use crate::signals::Signals;
use crate::terminal::say;
use crate::version::Major;

const POLL: Duration = Duration::from_millis(100);

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Start only these: postgres, rabbitmq, nats, redis, kafka, sqs
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    only: Vec<Kind>,

    /// The major version to start
    #[arg(long, value_name = "VERSION")]
    postgres: Option<Major>,

    #[command(flatten)]
    options: Options,
}

/// Starts the servers and waits to be told to stop.
pub(crate) fn run(args: &Args, signals: &Signals) -> Result<u8> {
    let kinds = if args.only.is_empty() { Kind::ALL.to_vec() } else { args.only.clone() };
    if args.postgres.is_some() && !kinds.contains(&Kind::Postgres) {
        bail!("`--postgres` chooses a server that `--only` leaves out");
    }
    let rounds = test::rounds(&kinds, &[], args.postgres.as_slice(), args.options.missing())?;
    let afterwards = args.options.afterwards();
    let scratch = scratch::folder(afterwards);
    let Some(wanted) = rounds.first() else { bail!("there is nothing to start") };
    let mut fleet = Fleet::start(wanted, &scratch, afterwards, signals)?;
    for server in fleet.servers() {
        let (kind, version, folder) = (server.kind(), server.version(), server.folder().display());
        say(&format!("{kind} {version} is process {} in {folder}", server.id().unwrap_or_default()));
    }
    say("Ctrl-C stops them");
    for (variable, value) in fleet.urls().chain(wanted.iter().map(programs)) {
        writeln!(std::io::stdout(), "export {variable}={value}")?;
    }
    std::io::stdout().flush()?;
    while signals.take().is_none() {
        fleet.check()?;
        sleep(POLL);
    }
    Ok(0)
}
