//! `cargo xtask soak`: kills everything around Postrider for hours, and checks that nothing is lost, invented or doubled.

use std::ffi::OsString;
use std::path::{self, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use postrider_servers::{Cleanup, Kind};

use crate::commands::test::{programs, rounds};
use crate::packages::OnMissing;
use crate::process;
use crate::scratch;
use crate::signals::Signals;
use crate::tools;
use crate::workspace::{cargo, target};

/// The servers of a run; the pooler is among the tools.
const SERVERS: [Kind; 2] = [Kind::Postgres, Kind::Nats];

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    goal: Goal,

    /// Continue the run in this folder, or begin one there [default: target/soak]
    #[arg(long, value_name = "FOLDER")]
    dir: Option<PathBuf>,

    /// Begin a new run, and remove what an earlier one has left in the folder
    #[arg(long)]
    fresh: bool,

    /// Choose the faults of a new run by this seed [default: random]
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u64>,

    /// Fail if a server is missing, instead of installing it
    #[arg(long)]
    no_install: bool,
}

/// The end of a run.
#[derive(Debug, clap::Args)]
#[group(required = true, multiple = true)]
struct Goal {
    /// End after this many kills, counted from the beginning of the run
    #[arg(long, value_name = "NUMBER")]
    kills: Option<u64>,

    /// Do not end before this many messages
    #[arg(long, value_name = "NUMBER")]
    messages: Option<u64>,

    /// End after this many hours, whatever else was asked for
    #[arg(long, value_name = "HOURS")]
    hours: Option<f64>,
}

/// Runs the soak test, and returns its exit code.
pub(crate) fn run(args: &Args, signals: &Signals) -> Result<u8> {
    let missing = if args.no_install { OnMissing::Fail } else { OnMissing::Install };
    let rounds = rounds(&SERVERS, &[tools::POOLER], &[], missing)?;
    let code = process::run(cargo().args(["build", "--release", "--package", "soak"]), signals)?;
    if code != 0 {
        return Ok(code);
    }
    // Cargo would not pass Ctrl-C on to the program.
    let mut command = Command::new(target().join("release/soak"));
    command.args(arguments(args)?);
    command.env(scratch::VARIABLE, scratch::folder(Cleanup::Remove));
    command.envs(rounds.iter().flatten().map(programs));
    process::run(&mut command, signals)
}

/// The command line of the program.
fn arguments(args: &Args) -> Result<Vec<OsString>> {
    let Args { goal, dir, fresh, seed, .. } = args;
    let dir = dir.clone().unwrap_or_else(|| target().join("soak"));
    let mut arguments = vec!["--dir".into(), path::absolute(dir).context("invalid `--dir`")?.into()];
    let numbers = [
        ("--kills", goal.kills.map(|kills| kills.to_string())),
        ("--messages", goal.messages.map(|messages| messages.to_string())),
        ("--hours", goal.hours.map(|hours| hours.to_string())),
        ("--seed", seed.map(|seed| seed.to_string())),
    ];
    for (name, number) in numbers {
        arguments.extend(number.into_iter().flat_map(|number| [name.into(), number.into()]));
    }
    if *fresh {
        arguments.push("--fresh".into());
    }
    Ok(arguments)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Cli {
        #[command(flatten)]
        args: Args,
    }

    #[test]
    fn options_are_passed_on() {
        let options = "soak --kills 20 --hours 0.5 --seed 7 --fresh --dir /somewhere";
        let cli = Cli::try_parse_from(options.split(' ')).unwrap();
        let passed: Vec<_> =
            arguments(&cli.args).unwrap().into_iter().map(|it| it.into_string().unwrap()).collect();
        assert_eq!(passed.join(" "), "--dir /somewhere --kills 20 --hours 0.5 --seed 7 --fresh");
    }

    #[test]
    fn a_run_needs_an_end() {
        assert!(Cli::try_parse_from(["soak", "--fresh"]).is_err());
    }
}
