//! `postrider doctor`: what is wrong, and what mends it.

mod consumers;
mod database;
mod destinations;
mod drift;
mod failing;
mod queues;
mod report;

use super::config::tell;
use crate::{
    config::{Config, Flags},
    database::Database,
    duration,
    exit::Exit,
    logs,
    problem::Problem,
    shared::Through,
};
use database::Patient;
use postrider::{CheckupRequest, Finding};
use report::{Found, Report};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

const EXAMPLES: &str = "Examples:
  postrider doctor                                       every database, route and destination of postrider.toml
  postrider doctor --db postgres://localhost/shop        one database
  postrider doctor --db shop.db --max-lag 1m --json      for programs
  postrider doctor --as operator --skip clock_skew       with the rights of an operator, and without one finding

It changes nothing. Each finding ends with what mends it. It ends with 0 when there is nothing but notes, with
3 when there are warnings, and with 1 when there are problems. docs/guides/operating.md has a table of all findings.";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// A file of SQLite, or postgres://user@host:5432/database; without it, everything that postrider.toml names
    #[arg(long, value_name = "PATH|URL", env = "POSTRIDER_DB", hide_env_values = true)]
    db: Option<Database>,

    #[command(flatten)]
    through: Through,

    #[command(flatten)]
    flags: Flags,

    /// How long the oldest message that is due may wait: 30s, 5m, 1h
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = duration::parse)]
    max_lag: Duration,

    /// How long a transaction may be open
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = duration::parse)]
    max_transaction: Duration,

    /// The role of PostgreSQL that whoever connects is to have: worker, operator, producer, rust-producer, scheduler, consumer or read-only
    #[arg(long = "as", value_name = "ROLE", default_value = "worker", value_parser = role)]
    role: String,

    /// Leave out findings with this code; may be given several times
    #[arg(long, value_name = "CODE")]
    skip: Vec<String>,

    /// Print one object of JSON, and nothing else, on stdout
    #[arg(long)]
    json: bool,
}

fn role(name: &str) -> Result<String, String> {
    let role = name.parse::<postrider::postgres::Role>().map_err(|error| error.to_string())?;
    Ok(role.to_string())
}

pub(crate) async fn run(args: Args, stop: CancellationToken) -> Result<Exit, Problem> {
    logs::start(None, "off");
    let config = match &args.db {
        Some(_) if !args.flags.is_named() => None,
        None if !args.flags.is_named() && !args.flags.file().exists() => {
            let help = "name a database with --db, or a configuration with --config";
            return Err(Problem::new("there is nothing to look at", help).ending(Exit::Misused));
        }
        _ => match args.flags.read() {
            Ok(config) => Some(config),
            Err(problems) => return Ok(tell(&problems)),
        },
    };
    let looking = async {
        match (config, &args.db) {
            (Some(config), _) => everything(&args, &config).await,
            (None, Some(database)) => one(&args, &args.through.to(database)).await,
            (None, None) => Report::default(),
        }
    };
    let Some(mut report) = stop.run_until_cancelled(looking).await else { return Ok(Exit::Interrupted) };
    report.leave_out(&args.skip);
    report.answer(args.json)
}

impl Args {
    fn request(&self) -> CheckupRequest {
        CheckupRequest::new().with_longest_transaction(self.max_transaction).with_role(self.role.as_str())
    }
}

async fn one(args: &Args, database: &Database) -> Report {
    let patient = Patient { database, routes: &[], config: None, section: None };
    let examined = patient.examine(args).await;
    Report { databases: 1, findings: examined.findings, ..Report::default() }
}

async fn everything(args: &Args, config: &Config) -> Report {
    let file = args.flags.file();
    let mut report = Report {
        databases: config.databases.len(),
        destinations: config.destinations.len(),
        routes: config.routes.len(),
        ..Report::default()
    };
    let mut addresses = destinations::Addresses::of(config);
    for (name, section) in &config.databases {
        let routes: Vec<_> = config.routes.iter().filter(|route| *route.database == *name).collect();
        let stands = format!("[databases.{name}] in {}", file.display());
        let patient = Patient {
            database: section.database(),
            routes: &routes,
            config: Some(&file),
            section: Some(&stands),
        };
        let examined = patient.examine(args).await;
        report.findings.extend(examined.findings);
        examined.samples.iter().for_each(|(queue, messages)| addresses.learn(name, queue, messages));
    }
    report.findings.extend(destinations::examine(config, &file, &addresses).await);
    report.findings.extend(consumers::examine(config, &file).await);
    report
}

/// What was found at one place.
fn at(place: &str, findings: Vec<Finding>) -> Vec<Found> {
    findings.into_iter().map(|finding| Found { place: place.to_owned(), finding }).collect()
}
