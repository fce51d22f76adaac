//! `postrider run`: the daemon. It carries what is staged, as `postrider.toml` says.
//!
//! SIGHUP reads the file again. One with a problem changes nothing. Otherwise the databases whose plan changed get a new relay
//! after their old one has drained, and the others are left alone; what was in hand comes again, since the store has it.
//! SIGTERM and SIGINT drain all of them.

mod carrying;
mod fleet;
mod hangup;
mod http;
mod manager;

use super::config::tell;
use crate::{
    config::{Config, Flags},
    duration,
    exit::Exit,
    logs,
    problem::Problem,
};
use fleet::Fleet;
use hangup::Hangup;
use std::{sync::Arc, time::Duration};
use tokio_util::sync::CancellationToken;

/// Drivers tell more than anybody wants to read.
const QUIET: &str = "info,sqlx=warn";

const EXAMPLES: &str = "Examples:
  postrider config init && postrider run --migrate     make the tables, then carry
  postrider run --config /etc/postrider.toml           as a service; systemd is told when it is ready
  kill -HUP <pid>                                      read the file again

It ends with 0 when it was stopped by SIGTERM or SIGINT and has drained; with 1 when it cannot begin; with 2 when it was called
wrongly; with 130 at the second signal, which does not wait.";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    flags: Flags,

    /// Make and update the tables first
    #[arg(long)]
    migrate: bool,

    /// When stopped, give what is on its way so long to arrive
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration::parse)]
    drain: Duration,
}

/// Carries until `stop` asks it to end.
pub(crate) async fn run(args: Args, stop: CancellationToken) -> Result<Exit, Problem> {
    let config = match args.flags.read() {
        Ok(config) => config,
        Err(problems) => return Ok(tell(&problems)),
    };
    logs::start_as(config.log_format.value, QUIET);
    let mut hangup = Hangup::listen()?;
    let fleet = Arc::new(Fleet::new(args.flags.file(), args.migrate, args.drain));
    if let Some(address) = config.listen.0 {
        http::serve(address, Arc::clone(&fleet)).await?;
    }
    let Some(started) = stop.run_until_cancelled(fleet.follow(config.plans())).await else {
        fleet.stop().await;
        return Ok(Exit::Well);
    };
    if let Some(problem) = started.into_iter().next() {
        fleet.stop().await;
        return Err(problem);
    }
    tracing::info!(name: "postrider.ready", databases = config.plans().len(), "ready");
    manager::ready();
    while stop.run_until_cancelled(hangup.next()).await.is_some() {
        reload(&args, &config, &fleet).await;
    }
    tracing::info!(name: "postrider.stopping", drain = ?args.drain, "stopping");
    manager::stopping();
    fleet.stop().await;
    tracing::info!(name: "postrider.stopped", "stopped");
    Ok(Exit::Well)
}

/// Reads the file again, and follows it if there is nothing wrong with it.
async fn reload(args: &Args, before: &Config, fleet: &Fleet) {
    manager::reloading();
    let problems = match args.flags.read() {
        Ok(config) => {
            for (key, is_same) in [
                ("http.listen", config.listen == before.listen),
                ("log.format", config.log_format == before.log_format),
            ] {
                if !is_same {
                    tracing::warn!(name: "postrider.restart_needed", key, "{key} has changed: restart to follow it");
                }
            }
            fleet.follow(config.plans()).await
        }
        Err(problems) => problems,
    };
    for problem in &problems {
        tracing::error!(name: "postrider.not_followed", "not followed: {}", problem.in_a_line());
    }
    match problems.is_empty() {
        true => tracing::info!(name: "postrider.reloaded", "the configuration is followed"),
        false => tracing::error!(name: "postrider.kept", "the configuration is kept as it was"),
    }
    manager::ready();
}
