//! `postrider config check`: validates the configuration without connecting.

use super::print_problems;
use crate::{
    config::{Config, Flags},
    exit::Exit,
    problem::Problem,
    resolver::Webhook,
    source, transport,
};
use std::path::Path;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Connects to nothing. Exit codes: 0 if the configuration is valid, 1 if\nit has problems."
)]
pub(crate) struct Args {
    #[command(flatten)]
    flags: Flags,
}

pub(crate) fn run(args: &Args) -> Result<Exit, Problem> {
    let file = args.flags.file();
    let config = match args.flags.read() {
        Ok(config) => config,
        Err(problems) => return Ok(print_problems(&problems)),
    };
    let problems = build_problems(&config, &file);
    if !problems.is_empty() {
        return Ok(print_problems(&problems));
    }
    let count = |number: usize, what: &str| format!("{number} {what}{}", if number == 1 { "" } else { "s" });
    let parts = [
        (config.databases.len(), "database"),
        (config.destinations.len(), "destination"),
        (config.routes.len(), "route"),
        (config.consumers.len(), "consumer"),
        (config.follow_ups.len(), "resolver"),
    ];
    let parts: Vec<_> = parts
        .into_iter()
        .filter(|(number, _)| *number > 0)
        .map(|(number, what)| count(number, what))
        .collect();
    eprintln!("{}: ok: {}", file.display(), parts.join(", "));
    Ok(Exit::Success)
}

/// The problems of building each transport, source and resolver.
fn build_problems(config: &Config, file: &Path) -> Vec<Problem> {
    let built = config.destinations.iter().map(|(name, section)| transport::build(file, name, section));
    let consumers = config.consumers.iter().map(|section| source::build(file, section).map(drop));
    let resolvers =
        config.follow_ups.iter().map(|section| Webhook::new(file, &config.source, section).map(drop));
    built.map(|built| built.map(drop)).chain(consumers).chain(resolvers).filter_map(Result::err).collect()
}
