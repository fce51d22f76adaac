//! `cargo xtask program`: what the program costs before it has carried anything.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use postrider_servers::process::output;
use tempfile::TempDir;

use crate::process;
use crate::signals::Signals;
use crate::terminal::say;
use crate::workspace::{cargo, root};

/// How often the program is started to take the median.
const STARTS: usize = 21;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Build into an empty folder, and tell how long that takes
    #[arg(long)]
    cold: bool,
}

pub(crate) fn run(args: &Args, signals: &Signals) -> Result<u8> {
    let cold = if args.cold { Some(TempDir::new_in(root().join("target"))?) } else { None };
    let target = cold.as_ref().map_or_else(|| root().join("target"), |folder| folder.path().to_owned());
    let program = target.join("release/postrider");

    let took = build(&target, &[], signals)?;
    if args.cold {
        println!("built from nothing, as `cargo run --release` does     {:>8.0} s", took.as_secs_f64());
    }
    println!("stripped, as it is built by default                   {:>8.1} MB", stripped(&program)?);
    println!("`postrider --version`, median of {STARTS}                   {:>8.1} ms", start(&program)?);
    println!("`postrider dev`, from its begin to the first handler  {:>8.1} ms", first_handled(&program)?);
    build(&target, &["--features", "full"], signals)?;
    println!("stripped, with every destination                      {:>8.1} MB", stripped(&program)?);
    println!("`postrider --version` with every destination          {:>8.1} ms", start(&program)?);
    Ok(0)
}

fn build(target: &Path, features: &[&str], signals: &Signals) -> Result<Duration> {
    let began_at = Instant::now();
    let mut command = cargo();
    command.args(["build", "--release", "--package", "postrider-cli"]).args(features);
    let code = process::run(command.env("CARGO_TARGET_DIR", target), signals)?;
    if code != 0 {
        bail!("the program does not build");
    }
    Ok(began_at.elapsed())
}

/// How many megabytes it has without what only debuggers read.
fn stripped(program: &Path) -> Result<f64> {
    let copy = program.with_extension("stripped");
    output(Command::new("strip").arg("-o").arg(&copy).arg(program))
        .context("strip is in the package binutils")?;
    let bytes = fs::metadata(&copy)?.len();
    fs::remove_file(&copy)?;
    Ok(bytes as f64 / 1e6)
}

/// How long it takes to be started and to end, in milliseconds.
fn start(program: &Path) -> Result<f64> {
    let mut times = Vec::new();
    for _ in 0..STARTS {
        let began_at = Instant::now();
        output(Command::new(program).arg("--version"))?;
        times.push(began_at.elapsed());
    }
    times.sort();
    Ok(times[STARTS / 2].as_secs_f64() * 1000.0)
}

/// What `dev` tells about itself, in milliseconds.
fn first_handled(program: &Path) -> Result<f64> {
    const KEY: &str = "\"first_handled_ms\":";
    let report = output(Command::new(program).args(["dev", "--for", "3s", "--json"]))?;
    let (_, after) = report.split_once(KEY).context("nothing was handled")?;
    let number = after.split([',', '}']).next().unwrap_or_default();
    say(&format!("dev: {}", report.trim()));
    number.parse().with_context(|| format!("nothing was handled: {report}"))
}
