//! The state of a run, which a later start continues.

use crate::totals::Totals;
use anyhow::{Context as _, Result, bail};
use serde::{Deserialize, Serialize};
use std::{
    fs::{self, File, TryLockError},
    io::{ErrorKind, Write},
    path::Path,
    time::Duration,
};
use tempfile::NamedTempFile;

const FILE: &str = "state.json";

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct State {
    pub(crate) seed: u64,
    /// The number of checked rounds.
    pub(crate) rounds: u64,
    pub(crate) elapsed: Duration,
    pub(crate) totals: Totals,
}

/// Reserves the folder for this process, until the file is dropped.
pub(crate) fn lock(folder: &Path) -> Result<File> {
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let file = File::create(folder.join("lock"))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => {
            bail!("another run uses {}: wait for its end, or name another folder", folder.display())
        }
        Err(TryLockError::Error(error)) => {
            Err(error).with_context(|| format!("cannot lock {}", folder.display()))
        }
    }
}

impl State {
    pub(crate) fn new(seed: u64) -> Self {
        Self { seed, rounds: 0, elapsed: Duration::ZERO, totals: Totals::default() }
    }

    /// The state that an earlier run has left in the folder, if any.
    pub(crate) fn read(folder: &Path) -> Result<Option<Self>> {
        let path = folder.join(FILE);
        let text = match fs::read_to_string(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            text => text.with_context(|| format!("cannot read {}", path.display()))?,
        };
        let state: Self = serde_json::from_str(&text).with_context(|| {
            format!(
                "{} is damaged, so the run cannot be continued: begin a new one with `--fresh`, or name another folder",
                path.display()
            )
        })?;
        if state.totals.violations() > 0 {
            bail!(
                "{} has the evidence of a violation: begin a new run with `--fresh`, or name another folder",
                folder.display()
            );
        }
        Ok(Some(state))
    }

    /// Replaces the state in the folder, all of it or nothing.
    pub(crate) fn save(&self, folder: &Path) -> Result<()> {
        let mut file = NamedTempFile::new_in(folder)?;
        serde_json::to_writer_pretty(&mut file, self)?;
        file.flush()?;
        file.as_file().sync_all()?;
        file.persist(folder.join(FILE)).context("cannot save the state")?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    fn state() -> State {
        let totals = Totals { kills: 7, messages: 900, ..Totals::default() };
        State { seed: 3, rounds: 2, elapsed: Duration::from_millis(1_500), totals }
    }

    #[test]
    fn a_saved_state_is_read_again() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(State::read(folder.path()).unwrap(), None);
        state().save(folder.path()).unwrap();
        assert_eq!(State::read(folder.path()).unwrap(), Some(state()));
    }

    #[test]
    fn a_damaged_state_is_an_error_with_advice() {
        let folder = tempfile::tempdir().unwrap();
        state().save(folder.path()).unwrap();
        let path = folder.path().join(FILE);
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, &text[..text.len() / 2]).unwrap();
        let error = State::read(folder.path()).unwrap_err().to_string();
        assert!(error.contains("is damaged") && error.contains("`--fresh`"), "{error}");
    }

    #[test]
    fn a_run_with_a_violation_is_not_continued() {
        let folder = tempfile::tempdir().unwrap();
        let mut state = state();
        state.totals.lost = 1;
        state.save(folder.path()).unwrap();
        let error = State::read(folder.path()).unwrap_err().to_string();
        assert!(error.contains("evidence of a violation"), "{error}");
    }

    #[test]
    fn a_folder_has_one_run_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let first = lock(folder.path()).unwrap();
        assert!(lock(folder.path()).unwrap_err().to_string().contains("another run"));
        drop(first);
        lock(folder.path()).unwrap();
    }
}
