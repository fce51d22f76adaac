//! The test runner: nextest if it is installed, else `cargo test`.

use std::env;
use std::num::NonZeroUsize;
use std::thread;

use anyhow::{Result, bail};
use postrider_servers::process::succeeds;

use crate::process;
use crate::signals::Signals;
use crate::suites::Selection;
use crate::terminal::{heading, info};
use crate::workspace::cargo;

const RUNNER_VARIABLE: &str = "POSTRIDER_RUNNER";

/// The variable with nextest's number of threads; `.config/nextest.toml` sets how many each test takes.
const THREADS: &str = "NEXTEST_TEST_THREADS";

/// A program that runs tests.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Runner {
    Nextest,
    Cargo,
}

impl Runner {
    /// The caller's choice, else the best one installed.
    pub(crate) fn choose() -> Result<Self> {
        match env::var(RUNNER_VARIABLE).as_deref() {
            Ok("cargo") => Ok(Self::Cargo),
            Ok("nextest") => Ok(Self::Nextest),
            Ok("") | Err(env::VarError::NotPresent) if succeeds(cargo().args(["nextest", "--version"])) => {
                Ok(Self::Nextest)
            }
            Ok("") | Err(env::VarError::NotPresent) => Ok(Self::Cargo),
            _ => bail!("{RUNNER_VARIABLE} must be `nextest` or `cargo`"),
        }
    }

    /// Arguments that raise the timeouts of tests and print their output.
    pub(crate) fn long_run_arguments(self) -> Vec<String> {
        match self {
            Self::Nextest => words(&["--profile", "faults", "--no-capture"], &[]),
            Self::Cargo => words(&["--", "--nocapture"], &[]),
        }
    }

    /// Runs every selected test, also after failures, and returns the first failing exit code.
    pub(crate) fn run(
        self,
        selection: &Selection,
        extra: &[String],
        environment: &[(&str, String)],
        signals: &Signals,
    ) -> Result<u8> {
        let mut first_failure = 0;
        let mut failed_before_last = Vec::new();
        let plan = self.plan(selection, extra);
        for (index, arguments) in plan.iter().enumerate() {
            heading(&format!("cargo {}", arguments.join(" ")));
            let mut command = cargo();
            command.args(arguments).envs(environment.iter().map(|(name, value)| (name, value)));
            if env::var_os(THREADS).is_none() {
                command.env(THREADS, threads().to_string());
            }
            let code = process::run(&mut command, signals)?;
            if code != 0 && index + 1 < plan.len() {
                failed_before_last.push(arguments.join(" "));
            }
            if first_failure == 0 {
                first_failure = code;
            }
        }
        // The last summary on screen may be green; earlier failures must not scroll away.
        for arguments in failed_before_last {
            info(&format!("`cargo {arguments}` failed (see above)"));
        }
        Ok(first_failure)
    }

    /// The invocations of cargo, in order. The longest is last, so that a run ends with its summary.
    fn plan(self, selection: &Selection, extra: &[String]) -> Vec<Vec<String>> {
        match self {
            Self::Nextest => Self::plan_nextest(selection, extra),
            Self::Cargo => Self::plan_cargo(selection, extra),
        }
    }

    fn plan_nextest(selection: &Selection, extra: &[String]) -> Vec<Vec<String>> {
        // nextest does not run documentation tests.
        let documentation = |targets: &[&str]| words(&["test", "--doc", "--all-features"], targets);
        let run = |targets: &[&str]| {
            let mut arguments = words(&["nextest", "run", "--all-features"], targets);
            arguments.extend_from_slice(extra);
            arguments
        };
        let suites = selection.suites();
        let mut plan: Vec<_> = suites
            .iter()
            .filter_map(|suite| suite.doc_test_package())
            .map(|package| documentation(&["--package", package]))
            .collect();
        match suites {
            [] => {
                plan.push(documentation(&["--workspace"]));
                plan.push(run(&["--workspace"]));
            }
            // Cargo's own selection builds nothing else and leaves `-E` to the caller.
            [suite] => plan.push(run(&as_strs(&suite.targets()))),
            several => {
                let expressions: Vec<_> = several.iter().map(|suite| suite.expression()).collect();
                plan.push(run(&["--workspace", "-E", &expressions.join(" + ")]));
            }
        }
        plan
    }

    fn plan_cargo(selection: &Selection, extra: &[String]) -> Vec<Vec<String>> {
        let run = |targets: &[&str]| {
            let mut arguments = words(&["test", "--all-features", "--no-fail-fast"], targets);
            arguments.extend_from_slice(extra);
            arguments
        };
        match selection.suites() {
            [] => vec![run(&["--workspace"])],
            // Cargo cannot join a package with another package's binaries: one run each.
            suites => suites.iter().map(|suite| run(&as_strs(&suite.targets()))).collect(),
        }
    }
}

/// Two threads per core: a busy test takes two, a test that waits for a server takes one.
fn threads() -> usize {
    2 * thread::available_parallelism().map_or(1, NonZeroUsize::get)
}

fn words(start: &[&str], end: &[&str]) -> Vec<String> {
    start.iter().chain(end).map(ToString::to_string).collect()
}

fn as_strs(words: &[String]) -> Vec<&str> {
    words.iter().map(String::as_str).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(runner: Runner, names: &[&str], extra: &[&str]) -> Vec<String> {
        let selection = Selection::named(&words(names, &[])).unwrap();
        runner.plan(&selection, &words(extra, &[])).iter().map(|arguments| arguments.join(" ")).collect()
    }

    #[test]
    fn nextest_runs_after_the_documentation_tests() {
        assert_eq!(
            plan(Runner::Nextest, &[], &["--retries", "2"]),
            ["test --doc --all-features --workspace", "nextest run --all-features --workspace --retries 2"]
        );
    }

    #[test]
    fn one_suite_is_selected_by_cargo_itself() {
        assert_eq!(
            plan(Runner::Nextest, &["postgres"], &["-E", "test(claim)"]),
            ["nextest run --all-features --workspace --test postgres* -E test(claim)"]
        );
        assert_eq!(
            plan(Runner::Nextest, &["core"], &[]),
            [
                "test --doc --all-features --package postrider-core",
                "nextest run --all-features --package postrider-core"
            ]
        );
    }

    #[test]
    fn several_suites_share_one_summary() {
        assert_eq!(
            plan(Runner::Nextest, &["postgres", "memory"], &[]),
            ["nextest run --all-features --workspace -E binary(/^postgres/) + binary(/^memory/)"]
        );
    }

    #[test]
    fn without_nextest_every_suite_is_a_run() {
        assert_eq!(
            plan(Runner::Cargo, &[], &["claim"]),
            ["test --all-features --no-fail-fast --workspace claim"]
        );
        assert_eq!(
            plan(Runner::Cargo, &["core", "postgres"], &[]),
            [
                "test --all-features --no-fail-fast --package postrider-core",
                "test --all-features --no-fail-fast --workspace --test postgres*"
            ]
        );
    }
}
