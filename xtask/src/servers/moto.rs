//! moto, which emulates SQS and SNS: from the Python package index, in a virtual environment that is created once and cached.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use nix::sys::signal::Signal;
use postrider_servers::Account;
use postrider_servers::process::{output, succeeds};

use crate::packages::OnMissing;
use crate::terminal::info;
use crate::workspace::program_cache;

/// moto and its dependencies as a server, each pinned to one version.
const REQUIREMENTS: &str = include_str!("moto/requirements.txt");
const VERSION: &str = "5.2.5";

/// The Debian package for virtual environments, if one must be created and the package is missing.
pub(crate) fn missing_package() -> Option<&'static str> {
    let is_there = home().is_ok_and(|home| is_current(&home)) || python().is_ok_and(|found| found.is_some());
    (!is_there).then_some("python3-venv")
}

/// The folder with the Python of the virtual environment.
pub(crate) fn programs(missing: OnMissing) -> Result<PathBuf> {
    let home = home()?;
    if !is_current(&home) {
        if missing == OnMissing::Fail {
            bail!("moto {VERSION} is not in {}, and --no-install is set", home.display());
        }
        fetch(&home)?;
    }
    let programs = home.join("bin");
    if !succeeds(Command::new(programs.join("python")).args(["-c", "import moto.server"])) {
        bail!("the moto in {} does not run here: remove the folder to fetch it again", home.display());
    }
    Ok(programs)
}

fn home() -> Result<PathBuf> {
    Ok(program_cache()?.join(format!("moto-{VERSION}")))
}

/// Whether the environment is complete and has the pinned versions.
fn is_current(home: &Path) -> bool {
    fs::read_to_string(home.join("requirements.txt")).is_ok_and(|text| text == REQUIREMENTS)
}

/// A Python that can create virtual environments and that the servers' account can run; Debian has a package for it.
fn python() -> Result<Option<PathBuf>> {
    let account = Account::choose()?;
    let is_usable = |python: &Path| {
        let mut command = account.command(python, Signal::SIGKILL);
        succeeds(command.args(["-c", "import ensurepip, venv"]).current_dir("/"))
    };
    Ok(["python3", "/usr/bin/python3"].map(PathBuf::from).into_iter().find(|python| is_usable(python)))
}

fn fetch(home: &Path) -> Result<()> {
    let python = python()?
        .context("moto needs a Python that can create virtual environments: install python3-venv")?;
    let cache = program_cache()?;
    fs::create_dir_all(&cache).with_context(|| format!("cannot create {}", cache.display()))?;
    info(&format!("fetching moto {VERSION} into {}", home.display()));
    // In the folder of its final path, so that one rename publishes it completely or not at all.
    let draft = tempfile::Builder::new().prefix("fetching-").tempdir_in(&cache)?;
    let environment = draft.path().join("environment");
    output(Command::new(python).args(["-m", "venv"]).arg(&environment))?;
    let requirements = environment.join("requirements.txt");
    fs::write(&requirements, REQUIREMENTS)?;
    // Only prebuilt packages: the installation runs no fetched code.
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
    fn every_requirement_is_pinned() {
        assert!(REQUIREMENTS.lines().any(|line| line == format!("moto=={VERSION}")));
        for line in REQUIREMENTS.lines() {
            assert_eq!(line.split("==").count(), 2, "{line}");
        }
    }
}
