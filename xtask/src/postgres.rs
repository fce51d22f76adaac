//! The PostgreSQL builds to run: installed or fetched.

mod apt;
mod build;
mod fetch;

use anyhow::{Context, Result};

use crate::packages::OnMissing;
use crate::version::Major;

pub(crate) use build::Build;

/// Finds, installs or fetches a build for every required version, before any server is started.
pub(crate) fn builds(required: &[Major], missing: OnMissing) -> Result<Vec<Build>> {
    if required.is_empty() {
        return Ok(vec![Build::default_build(missing).context("cannot provide PostgreSQL 14 or newer")?]);
    }
    required
        .iter()
        .map(|major| Build::of(*major, missing).with_context(|| format!("cannot provide PostgreSQL {major}")))
        .collect()
}
