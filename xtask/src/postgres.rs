//! Which PostgreSQL to run: installed, or fetched.

mod apt;
mod build;
mod fetch;

use anyhow::{Context, Result};

use crate::packages::Missing;
use crate::version::Major;

pub(crate) use build::Build;

/// Finds, installs or fetches a build for every wanted version, before anything is started.
pub(crate) fn builds(wanted: &[Major], missing: Missing) -> Result<Vec<Build>> {
    if wanted.is_empty() {
        return Ok(vec![Build::usual(missing).context("no PostgreSQL 14 or newer")?]);
    }
    wanted
        .iter()
        .map(|major| Build::of(*major, missing).with_context(|| format!("no PostgreSQL {major}")))
        .collect()
}
