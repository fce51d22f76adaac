//! `cargo xtask test`: private servers, the tests, and nothing left behind.

use std::env;

use anyhow::{Result, bail};

use crate::options::Options;
use crate::postgres::{self, Build, Durability, Postgres};
use crate::runner::Runner;
use crate::signals::Signals;
use crate::suites::{Selection, Server};
use crate::terminal::{heading, say};
use crate::tools;
use crate::version::Major;

/// Where tests find PostgreSQL.
pub(crate) const POSTGRES_URL: &str = "POSTRIDER_TEST_POSTGRES_URL";
/// The folder of its programs, for tests that start a server of their own to stop it.
pub(crate) const POSTGRES_PROGRAMS: &str = "POSTRIDER_TEST_POSTGRES_PROGRAMS";

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Run only these tests, with only the servers they need: core, memory, sqlite, postgres
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    pub(crate) only: Vec<String>,

    #[command(flatten)]
    pub(crate) servers: Servers,

    /// Passed to the test runner, such as a part of a test's name
    #[arg(last = true, value_name = "ARGS")]
    pub(crate) runner: Vec<String>,
}

/// Which servers the tests run against.
#[derive(Debug, clap::Args)]
pub(crate) struct Servers {
    /// Run all tests once on each of these major versions, such as 14,15,18
    #[arg(long, value_delimiter = ',', value_name = "VERSIONS")]
    postgres: Vec<Major>,

    #[command(flatten)]
    options: Options,
}

/// Runs the tests; the result is the runner's exit code.
pub(crate) fn run(args: &Args, signals: &Signals) -> Result<u8> {
    let selection = Selection::named(&args.only)?;
    let runner = Runner::choose()?;
    let test = |environment: &[(&str, String)]| runner.run(&selection, &args.runner, environment, signals);

    let Servers { postgres: versions, options } = &args.servers;
    tools::ensure(&selection.tools(), options.missing())?;
    if !selection.needs(Server::Postgres) {
        if !versions.is_empty() {
            bail!("`--postgres` chooses a server that the tests of `--only` do not use");
        }
        return test(&[]);
    }
    if env::var_os(POSTGRES_URL).is_some_and(|url| !url.is_empty()) {
        if !versions.is_empty() {
            bail!("`--postgres` starts servers, but {POSTGRES_URL} names one to use: unset it first");
        }
        say(&format!("using the server that {POSTGRES_URL} names"));
        let builds = postgres::builds(&[], options.missing())?;
        return test(&builds.iter().map(programs).collect::<Vec<_>>());
    }

    let mut first_failure = 0;
    for build in postgres::builds(versions, options.missing())? {
        let mut server = Postgres::start(&build, Durability::Relaxed, options.afterwards(), signals)?;
        heading(&format!("PostgreSQL {}", server.version()));
        let code = test(&[(POSTGRES_URL, server.url()), programs(&build)])?;
        server.check()?;
        if first_failure == 0 {
            first_failure = code;
        }
        if code != 0 && versions.len() > 1 {
            say(&format!("the tests failed on PostgreSQL {}", server.version()));
        }
    }
    Ok(first_failure)
}

/// What tells tests where the programs of a build are.
pub(crate) fn programs(build: &Build) -> (&'static str, String) {
    (POSTGRES_PROGRAMS, build.folder().display().to_string())
}
