//! `cargo xtask bench`: one benchmark, on a PostgreSQL with full durability.

use std::env;
use std::process::Command;

use anyhow::{Result, bail};
use postrider_servers::process::output;
use postrider_servers::{Durability, Kind, Postgres, Server, TempFolder};

use crate::cluster::{RequiredServer, RunningServers};
use crate::commands::test::rounds;
use crate::options::Options;
use crate::packages;
use crate::postgres;
use crate::process;
use crate::scratch::is_in_memory;
use crate::signals::Signals;
use crate::terminal::info;
use crate::tools;
use crate::version::Major;
use crate::workspace::{cargo, root};

/// The variable with the URL of PostgreSQL.
const POSTGRES_URL: &str = "POSTRIDER_BENCH_POSTGRES_URL";
/// The variable with the commit that benchmarks print.
const COMMIT: &str = "POSTRIDER_BENCH_COMMIT";
/// The benchmarks that need brokers, and the brokers they support.
const WITH_BROKERS: [&str; 2] = ["relay", "consume"];
const BROKERS: [Kind; 4] = [Kind::RabbitMq, Kind::Nats, Kind::Redis, Kind::Kafka];
/// The variable with the process id of PostgreSQL, for reading the CPU time of its process tree.
const POSTGRES_PID: &str = "POSTRIDER_BENCH_POSTGRES_PID";

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Measure this major version of PostgreSQL
    #[arg(long, value_name = "VERSION")]
    postgres: Option<Major>,

    /// Run `relay` and `consume` on these brokers: rabbitmq, nats, redis, kafka [default: all]
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    brokers: Vec<Kind>,

    #[command(flatten)]
    options: Options,

    /// Run this benchmark, with its own arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "NAME")]
    benchmark: Vec<String>,
}

/// Runs a benchmark and returns its exit code.
pub(crate) fn run(args: &Args, signals: &Signals) -> Result<u8> {
    let mut command = cargo();
    command.args(["run", "--release", "--package", "bench", "--"]).args(&args.benchmark);
    if let Some(commit) = commit() {
        command.env(COMMIT, commit);
    }
    packages::ensure(&tools::missing_packages(tools::BUILD), args.options.missing())?;
    let mut cluster = brokers(args, signals)?;
    for (variable, url) in cluster.iter().flat_map(RunningServers::urls) {
        command.env(variable, url);
    }
    if env::var_os(POSTGRES_URL).is_some_and(|url| !url.is_empty()) {
        info(&format!("using the server of {POSTGRES_URL}"));
        return process::run(&mut command, signals);
    }

    let folder = TempFolder::create(args.options.cleanup())?;
    let mut servers = Vec::new();
    for build in postgres::builds(args.postgres.as_slice(), args.options.missing())? {
        let spec = Postgres::new(build.folder(), Durability::Full);
        servers.push(Server::start(Box::new(spec), &folder, &|| signals.pending())?);
    }
    for server in &servers {
        info(&format!("PostgreSQL {} in {}", server.version(), server.folder().display()));
        if is_in_memory(server.folder()) {
            info(
                "warning: this folder is in memory, where commits are free: set TMPDIR to a folder on a disk",
            );
        }
        let id = server.id().unwrap_or_default();
        command.env(POSTGRES_URL, server.url()).env(POSTGRES_PID, id.to_string());
    }
    let code = process::run(&mut command, signals)?;
    servers.iter_mut().try_for_each(Server::check)?;
    cluster.iter_mut().try_for_each(RunningServers::check)?;
    Ok(code)
}

/// Starts the brokers of the benchmark, except those that the environment names.
fn brokers(args: &Args, signals: &Signals) -> Result<Option<RunningServers>> {
    if !args.benchmark.first().is_some_and(|name| WITH_BROKERS.contains(&name.as_str())) {
        return Ok(None);
    }
    let kinds = if args.brokers.is_empty() { &BROKERS } else { args.brokers.as_slice() };
    if let Some(kind) = kinds.iter().find(|kind| !BROKERS.contains(kind)) {
        bail!("no benchmark supports {kind}; supported: rabbitmq, nats, redis, kafka");
    }
    let mut required =
        rounds(kinds, &[], &[], args.options.missing())?.into_iter().flatten().collect::<Vec<_>>();
    required.retain(|required: &RequiredServer| !required.is_external());
    let cluster = RunningServers::start(&required, &env::temp_dir(), args.options.cleanup(), signals)?;
    info(&cluster.versions());
    Ok(Some(cluster))
}

/// The commit that is checked out, with the suffix `-dirty` if files differ from it. `None` without git or a repository.
fn commit() -> Option<String> {
    let git = |arguments: &[&str]| output(Command::new("git").args(arguments).current_dir(root())).ok();
    let commit = git(&["rev-parse", "--short", "HEAD"])?;
    let suffix = if git(&["status", "--porcelain"])?.is_empty() { "" } else { "-dirty" };
    Some(format!("{}{suffix}", commit.trim()))
}
