//! `cargo xtask bench`: one benchmark, on a server that keeps its promises.

use std::env;
use std::process::Command;

use anyhow::{Result, bail};
use postrider_servers::process::output;
use postrider_servers::{Durability, Folder, Kind, Postgres, Server};

use crate::commands::test::rounds;
use crate::fleet::{Fleet, Wanted};
use crate::options::Options;
use crate::packages;
use crate::postgres;
use crate::process;
use crate::scratch::is_in_memory;
use crate::signals::Signals;
use crate::terminal::say;
use crate::tools;
use crate::version::Major;
use crate::workspace::{cargo, root};

/// Where benchmarks find PostgreSQL.
const POSTGRES_URL: &str = "POSTRIDER_BENCH_POSTGRES_URL";
/// What is measured, as benchmarks print it.
const COMMIT: &str = "POSTRIDER_BENCH_COMMIT";
/// The benchmarks that need brokers, and which there are.
const WITH_BROKERS: [&str; 2] = ["relay", "consume"];
const BROKERS: [Kind; 4] = [Kind::RabbitMq, Kind::Nats, Kind::Redis, Kind::Kafka];
/// Its first process, whose family's processor time a benchmark can read.
const POSTGRES_PID: &str = "POSTRIDER_BENCH_POSTGRES_PID";

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The major version to measure
    #[arg(long, value_name = "VERSION")]
    postgres: Option<Major>,

    /// What `relay` publishes to and `consume` receives from: rabbitmq, nats, redis, kafka; all of them unless said otherwise
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    brokers: Vec<Kind>,

    #[command(flatten)]
    options: Options,

    /// The benchmark, then its own arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "NAME")]
    benchmark: Vec<String>,
}

/// Runs a benchmark; the result is its exit code.
pub(crate) fn run(args: &Args, signals: &Signals) -> Result<u8> {
    let mut command = cargo();
    command.args(["run", "--release", "--package", "bench", "--"]).args(&args.benchmark);
    if let Some(commit) = commit() {
        command.env(COMMIT, commit);
    }
    packages::ensure(&tools::missing_packages(tools::BUILD), args.options.missing())?;
    let mut fleet = brokers(args, signals)?;
    for (variable, url) in fleet.iter().flat_map(Fleet::urls) {
        command.env(variable, url);
    }
    if env::var_os(POSTGRES_URL).is_some_and(|url| !url.is_empty()) {
        say(&format!("using the server that {POSTGRES_URL} names"));
        return process::run(&mut command, signals);
    }

    let folder = Folder::create(args.options.afterwards())?;
    let mut servers = Vec::new();
    for build in postgres::builds(args.postgres.as_slice(), args.options.missing())? {
        let recipe = Postgres::new(build.folder(), Durability::Full);
        servers.push(Server::start(Box::new(recipe), &folder, &|| signals.pending())?);
    }
    for server in &servers {
        say(&format!("PostgreSQL {} in {}", server.version(), server.folder().display()));
        if is_in_memory(server.folder()) {
            say("that folder is in memory, where a commit costs nothing: set TMPDIR to a folder on a disk");
        }
        let id = server.id().unwrap_or_default();
        command.env(POSTGRES_URL, server.url()).env(POSTGRES_PID, id.to_string());
    }
    let code = process::run(&mut command, signals)?;
    servers.iter_mut().try_for_each(Server::check)?;
    fleet.iter_mut().try_for_each(Fleet::check)?;
    Ok(code)
}

/// The brokers of the benchmark, but for those that the environment names.
fn brokers(args: &Args, signals: &Signals) -> Result<Option<Fleet>> {
    if !args.benchmark.first().is_some_and(|name| WITH_BROKERS.contains(&name.as_str())) {
        return Ok(None);
    }
    let kinds = if args.brokers.is_empty() { &BROKERS } else { args.brokers.as_slice() };
    if let Some(kind) = kinds.iter().find(|kind| !BROKERS.contains(kind)) {
        bail!("nothing is measured on {kind}; on these there is: rabbitmq, nats, redis, kafka");
    }
    let mut wanted =
        rounds(kinds, &[], &[], args.options.missing())?.into_iter().flatten().collect::<Vec<_>>();
    wanted.retain(|wanted: &Wanted| !wanted.is_named());
    let fleet = Fleet::start(&wanted, &env::temp_dir(), args.options.afterwards(), signals)?;
    say(&fleet.versions());
    Ok(Some(fleet))
}

/// The commit that is checked out, with a mark when the files differ from it. Nothing where git or its folder is missing.
fn commit() -> Option<String> {
    let git = |arguments: &[&str]| output(Command::new("git").args(arguments).current_dir(root())).ok();
    let commit = git(&["rev-parse", "--short", "HEAD"])?;
    let changes = if git(&["status", "--porcelain"])?.is_empty() { "" } else { "-dirty" };
    Some(format!("{}{changes}", commit.trim()))
}
