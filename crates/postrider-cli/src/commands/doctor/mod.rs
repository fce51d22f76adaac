//! `postrider doctor`: diagnoses databases, queues, destinations and consumers, and prints the fixes.

mod consumers;
mod database;
mod destinations;
mod drift;
mod failures;
mod queues;
mod report;
mod schedules;

use super::config::print_problems;
use crate::{
    config::{Config, Flags},
    database::Database,
    duration,
    exit::Exit,
    logs,
    problem::Problem,
    shared::Through,
};
use database::DatabaseCheck;
use postrider::{CheckupRequest, Finding};
use report::{LocatedFinding, Report};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

const EXAMPLES: &str = "Examples:
  postrider doctor                                   all of postrider.toml
  postrider doctor --db postgres://localhost/shop    one database
  postrider doctor --db shop.db --max-lag 1m --json  for a program
  postrider doctor --as operator --skip clock_skew

doctor changes nothing. Each finding ends with its fix. The exit code is 0 when
there are only notes, 3 when there are warnings, and 1 when there are problems.
docs/guides/operating.md explains every finding.";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// SQLite file, or postgres://user@host:5432/database [default: all databases of postrider.toml]
    #[arg(long, value_name = "PATH|URL", env = "POSTRIDER_DB", hide_env_values = true)]
    db: Option<Database>,

    #[command(flatten)]
    through: Through,

    #[command(flatten)]
    flags: Flags,

    /// Maximum lag of a queue: 30s, 5m, 1h
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = duration::parse)]
    max_lag: Duration,

    /// Maximum duration of a transaction
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = duration::parse)]
    max_transaction: Duration,

    /// Role whose grants are checked in PostgreSQL: worker, operator, producer, rust-producer, scheduler, consumer or read-only
    #[arg(long = "as", value_name = "ROLE", default_value = "worker", value_parser = role)]
    role: String,

    /// Leave out findings with this code; repeatable
    #[arg(long, value_name = "CODE")]
    skip: Vec<String>,

    /// Print one JSON object to stdout, and nothing else
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
            return Err(
                Problem::new("no database and no postrider.toml to check", help).with_exit(Exit::Usage)
            );
        }
        _ => match args.flags.read() {
            Ok(config) => Some(config),
            Err(problems) => return Ok(print_problems(&problems)),
        },
    };
    let checks = async {
        match (config, &args.db) {
            (Some(config), _) => check_config(&args, &config).await,
            (None, Some(database)) => check_database(&args, &args.through.to(database)).await,
            (None, None) => Report::default(),
        }
    };
    let Some(mut report) = stop.run_until_cancelled(checks).await else { return Ok(Exit::Interrupted) };
    report.skip(&args.skip);
    report.print(args.json)
}

impl Args {
    fn request(&self) -> CheckupRequest {
        CheckupRequest::new().with_longest_transaction(self.max_transaction).with_role(self.role.as_str())
    }
}

async fn check_database(args: &Args, database: &Database) -> Report {
    let check = DatabaseCheck { database, routes: &[], config: None, section: None };
    let result = check.run(args).await;
    Report { databases: 1, findings: result.findings, ..Report::default() }
}

async fn check_config(args: &Args, config: &Config) -> Report {
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
        let section_name = format!("[databases.{name}] in {}", file.display());
        let check = DatabaseCheck {
            database: section.database(),
            routes: &routes,
            config: Some(&file),
            section: Some(&section_name),
        };
        let result = check.run(args).await;
        report.findings.extend(result.findings);
        result.samples.iter().for_each(|(queue, messages)| addresses.render_from(name, queue, messages));
    }
    report.findings.extend(destinations::check_all(config, &file, &addresses).await);
    report.findings.extend(consumers::check_all(config, &file).await);
    report
}

/// The findings of one database, destination or consumer.
fn locate(target: &str, findings: Vec<Finding>) -> Vec<LocatedFinding> {
    findings.into_iter().map(|finding| LocatedFinding { target: target.to_owned(), finding }).collect()
}
