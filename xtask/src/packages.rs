//! Installs Debian packages without starting their services.

use std::fs::{self, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use nix::unistd::geteuid;
use postrider_servers::process::succeeds;

use crate::terminal::info;

/// Tells Debian's scripts not to start services: 101 means "forbidden by policy".
const POLICY: &str = "/usr/sbin/policy-rc.d";

/// The action for a server or program that is not installed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnMissing {
    Install,
    Fail,
}

/// Installs the packages of missing programs in one step. An empty list is fine.
pub(crate) fn ensure(packages: &[&str], missing: OnMissing) -> Result<()> {
    if packages.is_empty() {
        return Ok(());
    }
    if missing == OnMissing::Fail || !geteuid().is_root() || !is_debian() {
        bail!(
            "missing servers or programs; as root, run: \
             apt-get update && apt-get install -y --no-install-recommends {}\n\
             or select fewer suites with `--only`",
            packages.join(" ")
        );
    }
    update()?;
    install(packages)
}

/// Whether this system has apt-get.
pub(crate) fn is_debian() -> bool {
    succeeds(Command::new("apt-get").arg("--version"))
}

/// Updates the list of packages.
pub(crate) fn update() -> Result<()> {
    apt_get(&["update"])
}

/// Installs packages without starting their services.
pub(crate) fn install(packages: &[&str]) -> Result<()> {
    info(&format!("installing {}", packages.join(" ")));
    let _policy = Policy::forbid_services()?;
    apt_get(&[&["install", "-y", "--no-install-recommends"], packages].concat())
}

fn apt_get(arguments: &[&str]) -> Result<()> {
    let status = Command::new("apt-get")
        .args(["--quiet", "-o", "DPkg::Lock::Timeout=300"])
        .args(arguments)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .stdin(Stdio::null())
        .stdout(io::stderr())
        .status()
        .context("cannot run apt-get")?;
    if !status.success() {
        bail!("`apt-get {}` failed ({status})", arguments.join(" "));
    }
    Ok(())
}

/// A policy that forbids services during an installation. A policy of the machine itself is respected and stays.
#[derive(Debug)]
struct Policy {
    ours: bool,
}

impl Policy {
    /// Forbids services until this value is dropped.
    fn forbid_services() -> Result<Self> {
        let ours = create(Path::new(POLICY), "#!/bin/sh\nexit 101\n").context(POLICY)?;
        let policy = Self { ours };
        if ours {
            fs::set_permissions(POLICY, Permissions::from_mode(0o755))?;
        }
        Ok(policy)
    }
}

impl Drop for Policy {
    fn drop(&mut self) {
        if self.ours
            && let Err(error) = fs::remove_file(POLICY)
        {
            info(&format!("cannot remove {POLICY}, which keeps services from starting: {error}; remove it"));
        }
    }
}

/// Creates a file; returns `false` if it already exists.
pub(crate) fn create(path: &Path, text: &str) -> io::Result<bool> {
    match OpenOptions::new().write(true).create_new(true).open(path) {
        Ok(mut file) => file.write_all(text.as_bytes()).map(|()| true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(error),
    }
}
