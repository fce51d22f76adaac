//! `cargo xtask test`: private servers, the tests, and nothing left behind.

use anyhow::{Result, bail};
use postrider_servers::Kind;

use crate::fleet::{Fleet, Wanted};
use crate::options::Options;
use crate::packages::{self, Missing};
use crate::postgres::{self, Build};
use crate::runner::Runner;
use crate::scratch;
use crate::servers;
use crate::signals::Signals;
use crate::suites::Selection;
use crate::terminal::{heading, say};
use crate::tools::{self, Tool};
use crate::version::Major;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Run only these tests, with only the servers they need: core, memory, sqlite,
    /// postgres, http, rabbitmq, nats, redis, kafka, sqs, daemon
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

impl Servers {
    /// What to do about what is missing.
    pub(crate) fn missing(&self) -> Missing {
        self.options.missing()
    }
}

/// Runs the tests; the result is the runner's exit code.
pub(crate) fn run(args: &Args, signals: &Signals) -> Result<u8> {
    let selection = Selection::named(&args.only)?;
    let how = How { runner: Runner::choose()?, extra: args.runner.clone(), variables: Vec::new() };
    run_selected(&selection, &how, &args.servers, signals)
}

/// How tests are run.
#[derive(Debug)]
pub(crate) struct How {
    pub(crate) runner: Runner,
    /// Passed to the runner.
    pub(crate) extra: Vec<String>,
    /// What the tests find in their environment, besides the servers.
    pub(crate) variables: Vec<(&'static str, String)>,
}

/// Runs these tests with the servers that they need.
pub(crate) fn run_selected(
    selection: &Selection,
    how: &How,
    servers: &Servers,
    signals: &Signals,
) -> Result<u8> {
    let Servers { postgres: versions, options } = servers;
    let kinds = selection.servers();
    if !versions.is_empty() && !kinds.contains(&Kind::Postgres) {
        bail!("`--postgres` chooses a server that the tests of `--only` do not use");
    }
    let rounds = rounds(&kinds, &selection.tools(), versions, options.missing())?;
    let scratch = scratch::folder(options.afterwards());
    let mut first_failure = 0;
    for wanted in &rounds {
        let (named, missing): (Vec<_>, Vec<_>) = wanted.iter().cloned().partition(Wanted::is_named);
        for Wanted { kind, .. } in &named {
            let variable = kind.url_variable();
            if *kind == Kind::Postgres && !versions.is_empty() {
                bail!("`--postgres` starts servers, but {variable} names one to use: unset it first");
            }
            say(&format!("using the server that {variable} names"));
        }
        let mut fleet = Fleet::start(&missing, &scratch, options.afterwards(), signals)?;
        let versions = fleet.versions();
        if !versions.is_empty() {
            heading(&versions);
        }
        let servers = fleet.urls().chain(wanted.iter().map(programs));
        let files = (scratch::VARIABLE, scratch.display().to_string());
        let environment: Vec<_> = servers.chain([files]).chain(how.variables.iter().cloned()).collect();
        let code = how.runner.run(selection, &how.extra, &environment, signals)?;
        fleet.check()?;
        if first_failure == 0 {
            first_failure = code;
        }
        if code != 0 && rounds.len() > 1 {
            say(&format!("the tests failed on {versions}"));
        }
    }
    Ok(first_failure)
}

/// Finds, installs or fetches the programs of all servers, before anything is started. There is one round for each version
/// of PostgreSQL, with everything else beside it.
pub(crate) fn rounds(
    kinds: &[Kind],
    tools: &[Tool],
    versions: &[Major],
    missing: Missing,
) -> Result<Vec<Vec<Wanted>>> {
    let mut packages = tools::missing_packages(tools::BUILD);
    packages.extend(tools::missing_packages(tools));
    packages.extend(kinds.iter().filter_map(|kind| servers::missing_package(*kind)));
    packages::ensure(&packages, missing)?;
    let mut round = Vec::new();
    for kind in kinds.iter().copied().filter(|kind| *kind != Kind::Postgres) {
        round.push(Wanted { kind, programs: servers::programs(kind, missing)? });
    }
    if !kinds.contains(&Kind::Postgres) {
        return Ok(vec![round]);
    }
    let builds = postgres::builds(versions, missing)?;
    let with_postgres = |build: &Build| {
        let postgres = Wanted { kind: Kind::Postgres, programs: build.folder().to_path_buf() };
        std::iter::once(postgres).chain(round.clone()).collect()
    };
    Ok(builds.iter().map(with_postgres).collect())
}

/// What tells tests where the programs of a server are.
pub(crate) fn programs(wanted: &Wanted) -> (&'static str, String) {
    (wanted.kind.programs_variable(), wanted.programs.display().to_string())
}
