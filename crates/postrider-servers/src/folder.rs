//! The one folder under which everything happens.

use std::env;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::Result;
use tempfile::TempDir;

/// What happens to a folder afterwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Afterwards {
    /// It is removed.
    Remove,
    /// It stays, for whoever wants to read data and logs.
    Keep,
}

/// A temporary folder. It must outlive the servers in it.
#[derive(Debug)]
pub struct Folder {
    /// Removes the folder when dropped; `None` when it stays.
    _removal: Option<TempDir>,
    path: PathBuf,
}

impl Folder {
    /// Makes one that nobody else has, where the system keeps temporary files.
    pub fn create(afterwards: Afterwards) -> Result<Self> {
        Self::create_in(&env::temp_dir(), afterwards)
    }

    /// Makes one in another folder.
    pub fn create_in(parent: &Path, afterwards: Afterwards) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("postrider-servers-").tempdir_in(parent)?;
        // Servers report their folders with links resolved, and that is how we know them.
        let path = folder.path().canonicalize()?;
        // Temporary folders are private to their creator; the servers' account has to pass.
        fs::set_permissions(&path, Permissions::from_mode(0o755))?;
        let removal = match afterwards {
            Afterwards::Remove => Some(folder),
            Afterwards::Keep => {
                let _ = folder.keep();
                None
            }
        };
        Ok(Self { _removal: removal, path })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}
