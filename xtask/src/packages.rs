//! Installs Debian's packages, without the services that they would start by themselves.

use std::fs::{self, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use nix::unistd::geteuid;
use postrider_servers::process::succeeds;

use crate::terminal::say;

/// Tells Debian's scripts not to start services: 101 means "forbidden by policy".
const POLICY: &str = "/usr/sbin/policy-rc.d";

/// What to do about a server or a program that is not on the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Missing {
    Install,
    Fail,
}

/// Installs packages for programs that are missing, all at once. Nothing to install is fine.
pub(crate) fn ensure(packages: &[&str], missing: Missing) -> Result<()> {
    if packages.is_empty() {
        return Ok(());
    }
    if missing == Missing::Fail || !geteuid().is_root() || !is_debian() {
        bail!(
            "servers or programs that the tests need are missing; as root, run: \
             apt-get update && apt-get install -y --no-install-recommends {}\n\
             or name fewer with `--only`",
            packages.join(" ")
        );
    }
    update()?;
    install(packages)
}

/// Whether packages can be installed here at all.
pub(crate) fn is_debian() -> bool {
    succeeds(Command::new("apt-get").arg("--version"))
}

/// Learns which packages there are.
pub(crate) fn update() -> Result<()> {
    apt_get(&["update"])
}

/// Installs packages, and starts nothing.
pub(crate) fn install(packages: &[&str]) -> Result<()> {
    say(&format!("installing {}", packages.join(" ")));
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

/// The machine's own policy is respected; one of ours ends with the installation.
#[derive(Debug)]
struct Policy {
    ours: bool,
}

impl Policy {
    /// Until this value is dropped.
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
            say(&format!("remove {POLICY} by hand, it keeps services from starting: {error}"));
        }
    }
}

/// Creates a file and tells whether it was absent.
pub(crate) fn create(path: &Path, text: &str) -> io::Result<bool> {
    match OpenOptions::new().write(true).create_new(true).open(path) {
        Ok(mut file) => file.write_all(text.as_bytes()).map(|()| true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(error),
    }
}
