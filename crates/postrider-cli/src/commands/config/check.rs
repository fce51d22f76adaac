//! `postrider config check`: whether `postrider run` would begin.

use super::tell;
use crate::{
    config::{Config, Flags},
    exit::Exit,
    problem::Problem,
    transport,
};
use std::path::Path;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "It connects to nobody. It ends with 0 when all is well, and with 1 when something has to be mended."
)]
pub(crate) struct Args {
    #[command(flatten)]
    flags: Flags,
}

pub(crate) fn run(args: &Args) -> Result<Exit, Problem> {
    let file = args.flags.file();
    let config = match args.flags.read() {
        Ok(config) => config,
        Err(problems) => return Ok(tell(&problems)),
    };
    let problems = unbuildable(&config, &file);
    if !problems.is_empty() {
        return Ok(tell(&problems));
    }
    let count = |number: usize, what: &str| format!("{number} {what}{}", if number == 1 { "" } else { "s" });
    eprintln!(
        "{}: ok: {}, {}, {}",
        file.display(),
        count(config.databases.len(), "database"),
        count(config.destinations.len(), "destination"),
        count(config.routes.len(), "route"),
    );
    Ok(Exit::Well)
}

/// Destinations that make no sense to their transport.
fn unbuildable(config: &Config, file: &Path) -> Vec<Problem> {
    let built = config.destinations.iter().map(|(name, section)| transport::build(file, name, section));
    built.filter_map(Result::err).collect()
}
