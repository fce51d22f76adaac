//! `cargo xtask ci`: every check that a change must pass.
//!
//! A failing step does not stop the next ones, so one run shows every problem. The tests come last,
//! so that the run ends with the summary of the test runner.

use std::time::Instant;

use anyhow::Result;

use crate::commands::test;
use crate::packages;
use crate::process;
use crate::signals::Signals;
use crate::terminal::{heading, info};
use crate::tools;
use crate::workspace::cargo;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    servers: test::Servers,
}

struct Step {
    name: &'static str,
    arguments: &'static [&'static str],
}

const STEPS: &[Step] = &[
    Step { name: "format", arguments: &["fmt", "--all", "--", "--check"] },
    Step {
        name: "lints",
        arguments: &["clippy", "--workspace", "--all-targets", "--all-features", "--", "-D", "warnings"],
    },
    Step { name: "documentation", arguments: &["doc", "--workspace", "--no-deps", "--all-features"] },
];

/// Runs every step and returns the exit code of the first that failed.
pub(crate) fn run(args: Args, signals: &Signals) -> Result<u8> {
    let started = Instant::now();
    // The lints compile before the tests, which check for everything else.
    packages::ensure(&tools::missing_packages(tools::BUILD), args.servers.missing())?;
    let print_heading = |name: &str| heading(&format!("[{:>6.1} s] {name}", started.elapsed().as_secs_f64()));
    let mut first_failure = 0;
    let mut failed = Vec::new();
    for Step { name, arguments } in STEPS {
        print_heading(name);
        let code = process::run(cargo().args(*arguments).env("RUSTDOCFLAGS", "-Dwarnings"), signals)?;
        if code != 0 {
            failed.push(*name);
        }
        if first_failure == 0 {
            first_failure = code;
        }
    }
    print_heading("tests");
    let tests = test::Args { only: Vec::new(), servers: args.servers, runner: Vec::new() };
    let tested = test::run(&tests, signals);
    if !failed.is_empty() {
        info(&format!("failed before the tests (see above): {}", failed.join(", ")));
    }
    let code = tested?;
    Ok(if first_failure == 0 { code } else { first_failure })
}
