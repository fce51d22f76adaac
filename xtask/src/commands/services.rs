//! `cargo xtask services`: the servers of the tests, for as long as somebody needs them.

use std::io::Write;
use std::thread::sleep;
use std::time::Duration;

use anyhow::Result;

use crate::commands::test::{POSTGRES_URL, programs};
use crate::options::Options;
use crate::postgres::{self, Durability, Postgres};
use crate::signals::Signals;
use crate::terminal::say;
use crate::version::Major;

const POLL: Duration = Duration::from_millis(100);

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The major version to start
    #[arg(long, value_name = "VERSION")]
    postgres: Option<Major>,

    #[command(flatten)]
    options: Options,
}

/// Starts the servers and waits to be told to stop.
pub(crate) fn run(args: &Args, signals: &Signals) -> Result<u8> {
    let mut servers = Vec::new();
    for build in postgres::builds(args.postgres.as_slice(), args.options.missing())? {
        let server = Postgres::start(&build, Durability::Relaxed, args.options.afterwards(), signals)?;
        let (version, id, folder) = (server.version(), server.id(), server.folder().display());
        say(&format!("PostgreSQL {version} is process {id} in {folder}; Ctrl-C stops it"));
        let (variable, folder) = programs(&build);
        writeln!(std::io::stdout(), "export {POSTGRES_URL}={}\nexport {variable}={folder}", server.url())?;
        servers.push(server);
    }
    std::io::stdout().flush()?;
    while signals.take().is_none() {
        for server in &mut servers {
            server.check()?;
        }
        sleep(POLL);
    }
    Ok(0)
}
