//! `postrider config show`: what holds, and where it comes from.

use super::tell;
use crate::{answer, config::Flags, exit::Exit, problem::Problem};
use serde::Serialize;
use serde_json::{Map, Value, json};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    flags: Flags,

    /// Also tell where each setting comes from: a line of the file, a variable, a flag, or the default
    #[arg(long)]
    origin: bool,

    /// Print one object of JSON, and nothing else, on stdout
    #[arg(long)]
    json: bool,
}

/// What holds, for programs: each setting by its key.
#[derive(Debug, Serialize)]
struct Shown {
    settings: Map<String, Value>,
}

pub(crate) fn run(args: &Args) -> Result<Exit, Problem> {
    let config = match args.flags.read() {
        Ok(config) => config,
        Err(problems) => return Ok(tell(&problems)),
    };
    let file = args.flags.file();
    let settings = config.settings().into_iter();
    if args.json {
        let entry = |value: Value, origin: String| match args.origin {
            true => json!({ "value": value, "origin": origin }),
            false => value,
        };
        let settings =
            settings.map(|setting| (setting.key, entry(setting.value, setting.origin.told(&file)))).collect();
        answer::json(&Shown { settings })?;
    } else {
        let line = |key: String, value: Value, origin: String| match args.origin {
            true => format!("{:<60} # {origin}\n", format!("{key} = {value}")),
            false => format!("{key} = {value}\n"),
        };
        let lines: String =
            settings.map(|setting| line(setting.key, setting.value, setting.origin.told(&file))).collect();
        answer::text(&lines)?;
    }
    Ok(Exit::Well)
}
