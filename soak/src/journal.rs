//! The effects of plain handlers, as a file that every process appends to: the world outside the database.

use anyhow::{Context as _, Result, ensure};
use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    path::Path,
    sync::Arc,
};
use uuid::Uuid;

const ENTRY_BYTES: usize = 16;

#[derive(Debug, Clone)]
pub(crate) struct Journal(Arc<File>);

impl Journal {
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path);
        Ok(Self(Arc::new(file.with_context(|| format!("cannot open {}", path.display()))?)))
    }

    /// One write of a few bytes: complete or not at all, whichever process is killed.
    pub(crate) fn append(&self, id: Uuid) -> io::Result<()> {
        (&*self.0).write_all(id.as_bytes())
    }

    /// The entries, in the order of their writes.
    pub(crate) fn read(path: &Path) -> Result<Vec<Uuid>> {
        let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        let (entries, rest) = bytes.as_chunks::<ENTRY_BYTES>();
        ensure!(rest.is_empty(), "{} ends with an incomplete entry", path.display());
        Ok(entries.iter().map(|entry| Uuid::from_bytes(*entry)).collect())
    }
}
