//! `cargo xtask program`: build time, size and start-up time of the program.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use postrider_servers::process::output;
use tempfile::TempDir;

use crate::process;
use crate::signals::Signals;
use crate::terminal::info;
use crate::workspace::{cargo, root};

/// The number of starts, of which the median is printed.
const STARTS: usize = 21;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Build into an empty folder and print the build time
    #[arg(long)]
    cold: bool,
}

pub(crate) fn run(args: &Args, signals: &Signals) -> Result<u8> {
    let cold = if args.cold { Some(TempDir::new_in(root().join("target"))?) } else { None };
    let target = cold.as_ref().map_or_else(|| root().join("target"), |folder| folder.path().to_owned());
    let program = target.join("release/postrider");

    let took = build(&target, &[], signals)?;
    if args.cold {
        println!("clean build, as `cargo run --release` does            {:>8.0} s", took.as_secs_f64());
    }
    println!("size, stripped, default features                      {:>8.1} MB", stripped(&program)?);
    println!("`postrider --version`, median of {STARTS}                   {:>8.1} ms", start(&program)?);
    println!("`postrider dev`, start to first handled message       {:>8.1} ms", first_handled_ms(&program)?);
    build(&target, &["--features", "full"], signals)?;
    println!("size, stripped, feature `full`                        {:>8.1} MB", stripped(&program)?);
    println!("`postrider --version`, feature `full`                 {:>8.1} ms", start(&program)?);
    Ok(0)
}

fn build(target: &Path, features: &[&str], signals: &Signals) -> Result<Duration> {
    let began_at = Instant::now();
    let mut command = cargo();
    command.args(["build", "--release", "--package", "postrider-cli"]).args(features);
    let code = process::run(command.env("CARGO_TARGET_DIR", target), signals)?;
    if code != 0 {
        bail!("cannot build the program");
    }
    Ok(began_at.elapsed())
}

/// The size in megabytes without debug symbols.
fn stripped(program: &Path) -> Result<f64> {
    let copy = program.with_extension("stripped");
    output(Command::new("strip").arg("-o").arg(&copy).arg(program))
        .context("cannot strip the program: install binutils")?;
    let bytes = fs::metadata(&copy)?.len();
    fs::remove_file(&copy)?;
    Ok(bytes as f64 / 1e6)
}

/// The run time of `--version` in milliseconds.
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

/// The time to the first handled message that `dev` reports, in milliseconds.
fn first_handled_ms(program: &Path) -> Result<f64> {
    const KEY: &str = "\"first_handled_ms\":";
    let report = output(Command::new(program).args(["dev", "--for", "3s", "--json"]))?;
    let (_, after) = report.split_once(KEY).context("`postrider dev` handled no message")?;
    let number = after.split([',', '}']).next().unwrap_or_default();
    info(&format!("dev: {}", report.trim()));
    number.parse().with_context(|| format!("`postrider dev` handled no message: {report}"))
}
