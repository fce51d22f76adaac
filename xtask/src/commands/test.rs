//! `cargo xtask test`: the tests, against private servers that are stopped afterwards.

use anyhow::{Result, bail};
use postrider_servers::Kind;

use crate::cluster::{RequiredServer, RunningServers};
use crate::options::Options;
use crate::packages::{self, OnMissing};
use crate::postgres::{self, Build};
use crate::runner::Runner;
use crate::scratch;
use crate::servers;
use crate::signals::Signals;
use crate::suites::Selection;
use crate::terminal::{heading, info};
use crate::tools::{self, Tool};
use crate::version::Major;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Run only these tests, with only the servers they need: core, tls, memory, sqlite,
    /// postgres, http, rabbitmq, nats, redis, kafka, sqs, daemon, soak
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    pub(crate) only: Vec<String>,

    #[command(flatten)]
    pub(crate) servers: Servers,

    /// Pass these arguments to the test runner, such as part of a test's name
    #[arg(last = true, value_name = "ARGS")]
    pub(crate) runner: Vec<String>,
}

/// The servers that the tests run against.
#[derive(Debug, clap::Args)]
pub(crate) struct Servers {
    /// Run all tests once on each of these major versions of PostgreSQL, such as 14,15,18
    #[arg(long, value_delimiter = ',', value_name = "VERSIONS")]
    postgres: Vec<Major>,

    #[command(flatten)]
    options: Options,
}

impl Servers {
    /// The action for a missing server or program.
    pub(crate) fn missing(&self) -> OnMissing {
        self.options.missing()
    }
}

/// Runs the tests and returns the exit code of the test runner.
pub(crate) fn run(args: &Args, signals: &Signals) -> Result<u8> {
    let selection = Selection::named(&args.only)?;
    let run_options =
        RunOptions { runner: Runner::choose()?, extra: args.runner.clone(), variables: Vec::new() };
    run_selected(&selection, &run_options, &args.servers, signals)
}

/// The runner of the tests, its arguments and its environment.
#[derive(Debug)]
pub(crate) struct RunOptions {
    pub(crate) runner: Runner,
    /// Passed to the runner.
    pub(crate) extra: Vec<String>,
    /// More environment variables of the tests.
    pub(crate) variables: Vec<(&'static str, String)>,
}

/// Runs the selected tests with the servers that they need.
pub(crate) fn run_selected(
    selection: &Selection,
    run_options: &RunOptions,
    servers: &Servers,
    signals: &Signals,
) -> Result<u8> {
    let Servers { postgres: versions, options } = servers;
    let kinds = selection.servers();
    if !versions.is_empty() && !kinds.contains(&Kind::Postgres) {
        bail!("`--postgres` has no effect: the tests of `--only` do not use PostgreSQL");
    }
    let rounds = rounds(&kinds, &selection.tools(), versions, options.missing())?;
    let scratch = scratch::folder(options.cleanup());
    let mut first_failure = 0;
    for required in &rounds {
        let (named, missing): (Vec<_>, Vec<_>) =
            required.iter().cloned().partition(RequiredServer::is_external);
        for RequiredServer { kind, .. } in &named {
            let variable = kind.url_variable();
            if *kind == Kind::Postgres && !versions.is_empty() {
                bail!("`--postgres` starts servers, but {variable} is set: unset it first");
            }
            info(&format!("using the server of {variable}"));
        }
        let mut cluster = RunningServers::start(&missing, &scratch, options.cleanup(), signals)?;
        let versions = cluster.versions();
        if !versions.is_empty() {
            heading(&versions);
        }
        let servers = cluster.urls().chain(required.iter().map(programs));
        let files = (scratch::VARIABLE, scratch.display().to_string());
        let environment: Vec<_> =
            servers.chain([files]).chain(run_options.variables.iter().cloned()).collect();
        let code = run_options.runner.run(selection, &run_options.extra, &environment, signals)?;
        cluster.check()?;
        if first_failure == 0 {
            first_failure = code;
        }
        if code != 0 && rounds.len() > 1 {
            info(&format!("tests failed on {versions}"));
        }
    }
    Ok(first_failure)
}

/// Finds, installs or fetches the programs of all servers before any is started. Returns one round per version of
/// PostgreSQL, each with all other servers.
pub(crate) fn rounds(
    kinds: &[Kind],
    tools: &[Tool],
    versions: &[Major],
    missing: OnMissing,
) -> Result<Vec<Vec<RequiredServer>>> {
    let mut packages = tools::missing_packages(tools::BUILD);
    packages.extend(tools::missing_packages(tools));
    packages.extend(kinds.iter().filter_map(|kind| servers::missing_package(*kind)));
    packages::ensure(&packages, missing)?;
    let mut round = Vec::new();
    for kind in kinds.iter().copied().filter(|kind| *kind != Kind::Postgres) {
        round.push(RequiredServer { kind, programs: servers::programs(kind, missing)? });
    }
    if !kinds.contains(&Kind::Postgres) {
        return Ok(vec![round]);
    }
    let builds = postgres::builds(versions, missing)?;
    let with_postgres = |build: &Build| {
        let postgres = RequiredServer { kind: Kind::Postgres, programs: build.folder().to_path_buf() };
        std::iter::once(postgres).chain(round.clone()).collect()
    };
    Ok(builds.iter().map(with_postgres).collect())
}

/// The environment variable with the folder of a server's programs.
pub(crate) fn programs(required: &RequiredServer) -> (&'static str, String) {
    (required.kind.programs_variable(), required.programs.display().to_string())
}
