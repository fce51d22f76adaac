//! Debian's package of PostgreSQL, without the database cluster that it would create by itself.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use nix::unistd::geteuid;
use postrider_servers::process::succeeds;

use crate::packages::{self, Missing};
use crate::terminal::say;
use crate::version::Major;

/// Tells Debian's scripts not to create a database cluster of their own.
const CLUSTER: &str = "/etc/postgresql-common/createcluster.conf";

/// Installs the usual version, or where Debian has another one, that. Returns the package's name.
pub(crate) fn install(missing: Missing) -> Result<String> {
    let package = format!("postgresql-{}", Major::USUAL);
    let command = format!("apt-get update && apt-get install -y --no-install-recommends {package}");
    if missing == Missing::Fail {
        bail!("it is not installed, and installing was ruled out; it would be: {command}");
    }
    if !packages::is_debian() {
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
    packages::update()?;
    let known = succeeds(Command::new("apt-cache").args(["show", &package]));
    let package = if known { package } else { "postgresql".into() };
    forbid_cluster()?;
    packages::install(&[&package])?;
    Ok(package)
}

/// Stays after the installation: a cluster that nobody asked for is no better later.
fn forbid_cluster() -> Result<()> {
    let path = Path::new(CLUSTER);
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    if packages::create(path, "create_main_cluster = false\n").context(CLUSTER)? {
        say(&format!("wrote {CLUSTER}: PostgreSQL's package will create no cluster of its own"));
    }
    Ok(())
}
