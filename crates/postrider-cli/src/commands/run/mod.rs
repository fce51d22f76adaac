//! `postrider run`: the daemon. As `postrider.toml` configures it, it relays staged messages, receives from brokers, and makes the
//! calls of follow-ups.
//!
//! SIGHUP reloads the file. A file with a problem changes nothing. Otherwise each component whose plan changed is restarted after the
//! old one has drained, and the other components keep running; messages that were in flight are delivered again, since the store
//! still has them. SIGTERM and SIGINT drain all components.

mod component;
mod consumers;
mod follow_ups;
mod http;
mod open;
mod relay;
mod reload;
mod shared_database;
mod supervisor;
mod systemd;

use super::config::print_problems;
use crate::{
    config::{Config, Flags},
    duration,
    exit::Exit,
    logs,
    problem::Problem,
    traces::Traces,
};
use http::HttpServer;
use reload::ReloadSignal;
use std::{sync::Arc, time::Duration};
use supervisor::{ReloadReport, Supervisor};
use tokio_util::sync::CancellationToken;

/// The default log filter: drivers log too much at info.
const LOG_FILTER: &str = "info,sqlx=warn";

const EXAMPLES: &str = "Examples:
  postrider config init && postrider run --migrate
                                  create the tables, then run
  postrider run --config /etc/postrider.toml
                                  run as a service; notifies systemd when ready
  kill -HUP <pid>                 reload the configuration

Exit codes: 0 after SIGTERM or SIGINT and a graceful shutdown; 1 if startup
fails; 2 for wrong arguments; 130 after a second signal, which skips the drain.";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    flags: Flags,

    /// Create or upgrade the tables before starting
    #[arg(long)]
    migrate: bool,

    /// Graceful-shutdown timeout: how long to wait for messages in flight
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration::parse)]
    drain: Duration,
}

/// Runs until `stop` requests a graceful shutdown.
pub(crate) async fn run(args: Args, stop: CancellationToken) -> Result<Exit, Problem> {
    let config = match args.flags.read() {
        Ok(config) => config,
        Err(problems) => return Ok(print_problems(&problems)),
    };
    let (traces, lines) = match &config.otlp {
        Some(endpoint) => {
            let (traces, lines) = Traces::open(endpoint)?;
            (Some(traces), Some(lines))
        }
        None => (None, None),
    };
    logs::start_as(config.log_format, LOG_FILTER, lines);
    let exit = supervise(&args, &config, stop).await;
    if let Some(traces) = traces {
        traces.close().await;
    }
    exit
}

async fn supervise(args: &Args, config: &Config, stop: CancellationToken) -> Result<Exit, Problem> {
    let mut reload_signal = ReloadSignal::listen()?;
    let supervisor = Arc::new(Supervisor::new(args.flags.file(), args.migrate, args.drain, stop.clone()));
    let mut http = HttpServer::new(Arc::clone(&supervisor))?;
    http.listen(config.listen).await?;
    let plans = config.plans();
    let components = plans.len();
    match supervisor.apply(plans).await {
        ReloadReport::Applied => {}
        ReloadReport::Stopped => {
            supervisor.stop().await;
            return Ok(Exit::Success);
        }
        ReloadReport::Unchanged(problem) => return Err(problem),
        ReloadReport::Partial(problems) => {
            supervisor.stop().await;
            let first = problems.into_iter().next();
            return Err(first.unwrap_or_else(|| Problem::new("startup failed", "see the log")));
        }
    }
    tracing::info!(name: "postrider.ready", components, "ready");
    systemd::ready();
    while stop.run_until_cancelled(reload_signal.next()).await.is_some() {
        reload(args, config, &supervisor, &mut http).await;
    }
    tracing::info!(name: "postrider.stopping", drain = ?args.drain, "stopping");
    systemd::stopping();
    supervisor.stop().await;
    tracing::info!(name: "postrider.stopped", "stopped");
    Ok(Exit::Success)
}

/// Reads the file again, and applies it unless it has a problem.
async fn reload(args: &Args, initial: &Config, supervisor: &Supervisor, http: &mut HttpServer) {
    systemd::reloading();
    match args.flags.read() {
        Ok(config) => {
            let mut report = supervisor.apply(config.plans()).await;
            if matches!(report, ReloadReport::Applied | ReloadReport::Partial(_))
                && let Err(problem) = http.listen(config.listen).await
            {
                report = report.with_problem(problem);
            }
            for (key, is_same) in [
                ("log.format", config.log_format == initial.log_format),
                ("otlp.endpoint", config.otlp == initial.otlp),
            ] {
                if !is_same {
                    tracing::warn!(name: "postrider.restart_needed", key, "{key} has changed: restart to apply it");
                }
            }
            log_report(&report);
        }
        Err(problems) => {
            problems.iter().for_each(log_reload_failed);
            log_config_kept();
        }
    }
    systemd::ready();
}

fn log_report(report: &ReloadReport) {
    match report {
        ReloadReport::Applied => tracing::info!(name: "postrider.reloaded", "configuration reloaded"),
        ReloadReport::Stopped => {}
        ReloadReport::Unchanged(problem) => {
            log_reload_failed(problem);
            log_config_kept();
        }
        ReloadReport::Partial(problems) => {
            problems.iter().for_each(log_reload_failed);
            tracing::error!(name: "postrider.partly_reloaded", "configuration partly reloaded: all other changes are in effect");
        }
    }
}

fn log_reload_failed(problem: &Problem) {
    tracing::error!(name: "postrider.reload_failed", "reload failed: {}", problem.one_line());
}

fn log_config_kept() {
    tracing::error!(name: "postrider.config_kept", "the previous configuration stays in effect");
}
