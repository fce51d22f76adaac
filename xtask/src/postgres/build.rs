//! The folder of PostgreSQL's programs.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use postrider_servers::process;

use crate::packages::OnMissing;
use crate::postgres::{apt, fetch};
use crate::version::Major;

/// The folder of Debian's versions, which are not on the `PATH`.
const DEBIAN: &str = "/usr/lib/postgresql";

/// The programs of one version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Build {
    folder: PathBuf,
    major: Major,
}

impl Build {
    /// The build in a folder; `None` if the folder has no programs of a supported version.
    pub(crate) fn inspect(folder: &Path) -> Option<Self> {
        if !folder.join("initdb").is_file() {
            return None;
        }
        let banner = process::output(Command::new(folder.join("postgres")).arg("--version")).ok()?;
        Some(Self { folder: folder.to_path_buf(), major: Major::from_banner(&banner)? })
    }

    /// The folder of its programs.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The default build of the tests: the default version if it is installed, else any other
    /// installed version.
    pub(crate) fn default_build(missing: OnMissing) -> Result<Self> {
        let find = || {
            let installed = installed();
            let default_build = installed.iter().find(|build| build.major == Major::DEFAULT);
            default_build.or(installed.first()).cloned()
        };
        match find() {
            Some(build) => Ok(build),
            None => {
                let package = apt::install(missing)?;
                find().with_context(|| format!("installed {package}, but found no PostgreSQL"))
            }
        }
    }

    /// The build of one version.
    pub(crate) fn of(major: Major, missing: OnMissing) -> Result<Self> {
        let find = || installed().into_iter().find(|build| build.major == major);
        if let Some(build) = find() {
            return Ok(build);
        }
        if fetch::offers(major) {
            return fetch::build(major, missing);
        }
        if major == Major::DEFAULT {
            let package = apt::install(missing)?;
            return find().with_context(|| {
                format!("package {package} has another version here; choose one of: {}", fetch::offered())
            });
        }
        bail!("not installed, and only {} can be fetched", fetch::offered())
    }
}

/// Every supported build on the machine, best first.
fn installed() -> Vec<Build> {
    let mut builds: Vec<_> =
        on_path().into_iter().chain(from_debian()).filter_map(|folder| Build::inspect(&folder)).collect();
    builds.dedup();
    builds
}

/// The folders on the caller's `PATH`, which come first.
fn on_path() -> Vec<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<_> = env::split_paths(&path)
        // Some systems link single programs; the other programs are in the folder of the link's target.
        .filter_map(|folder| folder.join("postgres").canonicalize().ok())
        .filter_map(|program| program.parent().map(Path::to_path_buf))
        .collect();
    if let Ok(folder) = process::output(Command::new("pg_config").arg("--bindir")) {
        folders.push(folder.trim_end().into());
    }
    folders
}

/// Debian's folders, newest version first.
fn from_debian() -> Vec<PathBuf> {
    let entries = fs::read_dir(DEBIAN).into_iter().flatten().flatten();
    let mut versions: Vec<u32> =
        entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    versions.sort_unstable_by(|a, b| b.cmp(a));
    versions.iter().map(|version| Path::new(DEBIAN).join(version.to_string()).join("bin")).collect()
}
