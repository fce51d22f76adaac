//! moto, which plays SQS and SNS: from the Python package index, in a virtual environment that is made once and kept.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use nix::sys::signal::Signal;
use postrider_servers::Account;
use postrider_servers::process::{output, succeeds};

use crate::packages::Missing;
use crate::terminal::say;
use crate::workspace::program_cache;

/// moto and all that it needs to be a server, each in one version.
const REQUIREMENTS: &str = include_str!("moto/requirements.txt");
const VERSION: &str = "5.2.5";

/// The package without which no virtual environment can be made here, when one has to be made.
pub(crate) fn missing_package() -> Option<&'static str> {
    let is_there = home().is_ok_and(|home| is_current(&home)) || python().is_ok_and(|found| found.is_some());
    (!is_there).then_some("python3-venv")
}

/// The folder with the Python of the virtual environment.
pub(crate) fn programs(missing: Missing) -> Result<PathBuf> {
    let home = home()?;
    if !is_current(&home) {
        if missing == Missing::Fail {
            bail!("it is not in {}, and fetching moto {VERSION} was ruled out", home.display());
        }
        fetch(&home)?;
    }
    let programs = home.join("bin");
    if !succeeds(Command::new(programs.join("python")).args(["-c", "import moto.server"])) {
        bail!("{} holds no moto that runs here: remove it to fetch it again", home.display());
    }
    Ok(programs)
}

fn home() -> Result<PathBuf> {
    Ok(program_cache()?.join(format!("moto-{VERSION}")))
}

/// Whether the environment is there, whole, and holds what is asked for today.
fn is_current(home: &Path) -> bool {
    fs::read_to_string(home.join("requirements.txt")).is_ok_and(|text| text == REQUIREMENTS)
}

/// A Python that the servers' account can run, too, and that can make virtual environments: Debian has a package for that.
fn python() -> Result<Option<PathBuf>> {
    let account = Account::choose()?;
    let is_usable = |python: &Path| {
        let mut command = account.command(python, Signal::SIGKILL);
        succeeds(command.args(["-c", "import ensurepip, venv"]).current_dir("/"))
    };
    Ok(["python3", "/usr/bin/python3"].map(PathBuf::from).into_iter().find(|python| is_usable(python)))
}

fn fetch(home: &Path) -> Result<()> {
    let python =
        python()?.context("it needs a Python that can make virtual environments: install python3-venv")?;
    let cache = program_cache()?;
    fs::create_dir_all(&cache).with_context(|| format!("cannot create {}", cache.display()))?;
    say(&format!("fetching moto {VERSION} into {}", home.display()));
    // Beside its final place, so that one rename publishes it whole or not at all.
    let draft = tempfile::Builder::new().prefix("fetching-").tempdir_in(&cache)?;
    let environment = draft.path().join("environment");
    output(Command::new(python).args(["-m", "venv"]).arg(&environment))?;
    let requirements = environment.join("requirements.txt");
    fs::write(&requirements, REQUIREMENTS)?;
    // Only what is built already: nothing of what is fetched is run to install it.
    let mut pip = Command::new(environment.join("bin/python"));
    pip.args(["-m", "pip", "install", "--quiet", "--no-input", "--disable-pip-version-check"]);
    output(pip.args(["--only-binary", ":all:", "--requirement"]).arg(&requirements))?;
    // The server runs as another user than the one who fetches.
    output(Command::new("chmod").args(["-R", "a+rX"]).arg(&environment))?;
    if home.exists() && !is_current(home) {
        fs::remove_dir_all(home)?;
    }
    match fs::rename(&environment, home) {
        // Another xtask was faster, with the same versions.
        Err(_) if is_current(home) => Ok(()),
        renamed => renamed.with_context(|| format!("cannot create {}", home.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_requirement_is_one_version() {
        assert!(REQUIREMENTS.lines().any(|line| line == format!("moto=={VERSION}")));
        for line in REQUIREMENTS.lines() {
            assert_eq!(line.split("==").count(), 2, "{line}");
        }
    }
}
