//! `postrider run`: the daemon. It does what `postrider.toml` says: carries what is staged, receives, and calls for follow-ups.
//!
//! SIGHUP reads the file again. One with a problem changes nothing. Otherwise the parts whose plan changed are started anew after
//! the old ones have drained, and the others are left alone; what was in hand comes again, since the store has it.
//! SIGTERM and SIGINT drain all of them.

mod carrying;
mod consuming;
mod fleet;
mod following;
mod hangup;
mod http;
mod manager;
mod opening;
mod pool;
mod unit;

use super::config::tell;
use crate::{
    config::{Config, Flags},
    duration,
    exit::Exit,
    logs,
    problem::Problem,
    traces::Traces,
};
use fleet::{Fleet, Followed};
use hangup::Hangup;
use http::Http;
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

/// Works until `stop` asks it to end.
pub(crate) async fn run(args: Args, stop: CancellationToken) -> Result<Exit, Problem> {
    let config = match args.flags.read() {
        Ok(config) => config,
        Err(problems) => return Ok(tell(&problems)),
    };
    let (traces, lines) = match &config.otlp {
        Some(endpoint) => {
            let (traces, lines) = Traces::open(endpoint)?;
            (Some(traces), Some(lines))
        }
        None => (None, None),
    };
    logs::start_as(config.log_format.value, QUIET, lines);
    let ended = work(&args, &config, stop).await;
    if let Some(traces) = traces {
        traces.close().await;
    }
    ended
}

async fn work(args: &Args, config: &Config, stop: CancellationToken) -> Result<Exit, Problem> {
    let mut hangup = Hangup::listen()?;
    let fleet = Arc::new(Fleet::new(args.flags.file(), args.migrate, args.drain, stop.clone()));
    let mut http = Http::new(Arc::clone(&fleet))?;
    http.listen(config.listen.value).await?;
    let plans = config.plans();
    let parts = plans.len();
    match fleet.follow(plans).await {
        Followed::Whole => {}
        Followed::Stopped => {
            fleet.stop().await;
            return Ok(Exit::Well);
        }
        Followed::Kept(problem) => return Err(problem),
        Followed::Partly(problems) => {
            fleet.stop().await;
            let first = problems.into_iter().next();
            return Err(first.unwrap_or_else(|| Problem::new("it cannot begin", "look at the log")));
        }
    }
    tracing::info!(name: "postrider.ready", parts, "ready");
    manager::ready();
    while stop.run_until_cancelled(hangup.next()).await.is_some() {
        reload(args, config, &fleet, &mut http).await;
    }
    tracing::info!(name: "postrider.stopping", drain = ?args.drain, "stopping");
    manager::stopping();
    fleet.stop().await;
    tracing::info!(name: "postrider.stopped", "stopped");
    Ok(Exit::Well)
}

/// Reads the file again, and follows it if there is nothing wrong with it.
async fn reload(args: &Args, began: &Config, fleet: &Fleet, http: &mut Http) {
    manager::reloading();
    match args.flags.read() {
        Ok(config) => {
            let mut followed = fleet.follow(config.plans()).await;
            if matches!(followed, Followed::Whole | Followed::Partly(_))
                && let Err(problem) = http.listen(config.listen.value).await
            {
                followed = followed.but(problem);
            }
            for (key, is_same) in [
                ("log.format", config.log_format == began.log_format),
                ("otlp.endpoint", config.otlp == began.otlp),
            ] {
                if !is_same {
                    tracing::warn!(name: "postrider.restart_needed", key, "{key} has changed: restart to follow it");
                }
            }
            told(&followed);
        }
        Err(problems) => {
            problems.iter().for_each(not_followed);
            kept();
        }
    }
    manager::ready();
}

fn told(followed: &Followed) {
    match followed {
        Followed::Whole => tracing::info!(name: "postrider.reloaded", "the configuration is followed"),
        Followed::Stopped => {}
        Followed::Kept(problem) => {
            not_followed(problem);
            kept();
        }
        Followed::Partly(problems) => {
            problems.iter().for_each(not_followed);
            tracing::error!(name: "postrider.partly_reloaded", "the rest of the configuration is followed");
        }
    }
}

fn not_followed(problem: &Problem) {
    tracing::error!(name: "postrider.not_followed", "not followed: {}", problem.in_a_line());
}

fn kept() {
    tracing::error!(name: "postrider.kept", "the configuration is kept as it was");
}
