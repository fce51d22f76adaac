//! Installs Debian's package, without the server that the package would start by itself.

use std::fs::{self, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use nix::unistd::geteuid;

use crate::postgres::build::Missing;
use crate::process::succeeds;
use crate::terminal::say;
use crate::version::Major;

/// Tells Debian's scripts not to start services: 101 means "forbidden by policy".
const POLICY: &str = "/usr/sbin/policy-rc.d";
/// Tells Debian's scripts not to create a database cluster of their own.
const CLUSTER: &str = "/etc/postgresql-common/createcluster.conf";

/// Installs the usual version, or where Debian has another one, that. Returns the package's name.
pub(crate) fn install(missing: Missing) -> Result<String> {
    let package = format!("postgresql-{}", Major::USUAL);
    let command = format!("apt-get update && apt-get install -y --no-install-recommends {package}");
    if missing == Missing::Fail {
        bail!("it is not installed, and installing was ruled out; it would be: {command}");
    }
    if !succeeds(Command::new("apt-get").arg("--version")) {
        bail!(
            "it is not installed, and there is no apt-get: install PostgreSQL with your system's own \
             tools, with `postgres` and `initdb` on the PATH"
        );
    }
    if !geteuid().is_root() {
        bail!(
            "it is not installed; as root, run: {command}\n\
             or name a version that can be fetched with npm, such as `--postgres 18`"
        );
    }
    apt_get(&["update"])?;
    let known = succeeds(Command::new("apt-cache").args(["show", &package]));
    let package = if known { package } else { "postgresql".into() };
    say(&format!("installing {package}"));
    forbid_cluster()?;
    let _policy = Policy::forbid_services()?;
    apt_get(&["install", "-y", "--no-install-recommends", &package])?;
    Ok(package)
}

/// Runs apt-get without questions.
pub(crate) fn apt_get(arguments: &[&str]) -> Result<()> {
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

/// Stays after the installation: a cluster that nobody asked for is no better later.
fn forbid_cluster() -> Result<()> {
    let path = Path::new(CLUSTER);
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    if create(path, "create_main_cluster = false\n").context(CLUSTER)? {
        say(&format!("wrote {CLUSTER}: PostgreSQL's package will create no cluster of its own"));
    }
    Ok(())
}

/// The machine's own policy is respected; one of ours ends with the installation.
#[derive(Debug)]
pub(crate) struct Policy {
    ours: bool,
}

impl Policy {
    /// Until this value is dropped.
    pub(crate) fn forbid_services() -> Result<Self> {
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
fn create(path: &Path, text: &str) -> io::Result<bool> {
    match OpenOptions::new().write(true).create_new(true).open(path) {
        Ok(mut file) => file.write_all(text.as_bytes()).map(|()| true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(error),
    }
}
