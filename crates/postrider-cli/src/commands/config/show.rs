//! `postrider config show`: the effective configuration, and the origin of each value.

use super::print_problems;
use crate::{config::Flags, exit::Exit, output, problem::Problem};
use serde::Serialize;
use serde_json::{Map, Value, json};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    flags: Flags,

    /// Also print the origin of each setting: a line of the file, a variable, a flag, or the default
    #[arg(long)]
    origin: bool,

    /// Print one JSON object, and nothing else, on stdout
    #[arg(long)]
    json: bool,
}

/// The effective configuration as JSON: each setting by its key.
#[derive(Debug, Serialize)]
struct EffectiveConfig {
    settings: Map<String, Value>,
}

pub(crate) fn run(args: &Args) -> Result<Exit, Problem> {
    let config = match args.flags.read() {
        Ok(config) => config,
        Err(problems) => return Ok(print_problems(&problems)),
    };
    let file = args.flags.file();
    let settings = config.settings().into_iter();
    if args.json {
        let entry = |value: Value, origin: String| match args.origin {
            true => json!({ "value": value, "origin": origin }),
            false => value,
        };
        let settings = settings
            .map(|setting| (setting.key, entry(setting.value, setting.origin.describe(&file))))
            .collect();
        output::json(&EffectiveConfig { settings })?;
    } else {
        let line = |key: String, value: Value, origin: String| match args.origin {
            true => format!("{:<60} # {origin}\n", format!("{key} = {value}")),
            false => format!("{key} = {value}\n"),
        };
        let lines: String = settings
            .map(|setting| line(setting.key, setting.value, setting.origin.describe(&file)))
            .collect();
        output::text(&lines)?;
    }
    Ok(Exit::Success)
}
