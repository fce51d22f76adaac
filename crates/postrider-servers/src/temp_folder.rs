//! The temporary folder of servers.

use std::env;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::Result;
use tempfile::TempDir;

/// Whether a folder is removed when it is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cleanup {
    /// Remove it.
    Remove,
    /// Keep it, with its data and logs.
    Keep,
}

/// A temporary folder. It must outlive the servers in it.
#[derive(Debug)]
pub struct TempFolder {
    /// Removes the folder when dropped; `None` when it stays.
    removal: Option<TempDir>,
    path: PathBuf,
}

impl TempFolder {
    /// Creates a new folder in the system's temporary folder.
    pub fn create(cleanup: Cleanup) -> Result<Self> {
        Self::create_in(&env::temp_dir(), cleanup)
    }

    /// Creates a new folder in `parent`.
    pub fn create_in(parent: &Path, cleanup: Cleanup) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("postrider-servers-").tempdir_in(parent)?;
        // Servers report their folders with links resolved, and are identified by that path.
        let path = folder.path().canonicalize()?;
        // Temporary folders are private to their creator; the servers' account must be able to enter.
        fs::set_permissions(&path, Permissions::from_mode(0o755))?;
        let removal = match cleanup {
            Cleanup::Remove => Some(folder),
            Cleanup::Keep => {
                let _ = folder.keep();
                None
            }
        };
        Ok(Self { removal, path })
    }

    /// Keeps the folder when this value is dropped.
    pub fn keep(&mut self) {
        if let Some(folder) = self.removal.take() {
            let _ = folder.keep();
        }
    }

    /// The path of the folder.
    pub fn path(&self) -> &Path {
        &self.path
    }
}
