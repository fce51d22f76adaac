//! Checks of the file for `postrider doctor`. Opening a store enables write-ahead logging, so the checks must run before that.

use super::{
    SqliteStore,
    error::{code, is_busy, store_error},
};
use postrider_core::{CheckupRequest, Error, Finding};
use sqlx::{ConnectOptions, Connection, Executor, Row, SqliteConnection, sqlite::SqliteConnectOptions};
use std::{
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

/// SQLite makes a checkpoint after four megabytes, unless a long read prevents it.
const LARGE_WAL: u64 = 64 << 20;
/// How long to wait for the write lock. Our own writes take milliseconds.
const BUSY_TIMEOUT: Duration = Duration::from_secs(2);
/// File systems on which locks between processes, or the shared memory of the log, do not work.
const NETWORKS: [&str; 10] =
    ["nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "fuse.sshfs", "fuse.glusterfs", "ceph"];

const READ_ONLY: i32 = 8;
const CORRUPT: i32 = 11;
const NOT_A_DATABASE: i32 = 26;

fn primary_code(error: &sqlx::Error) -> Option<i32> {
    code(error).map(|code| code & 0xff)
}

/// An SQLite file. A checkup creates and changes nothing.
#[derive(Debug, Clone)]
pub struct SqliteFile {
    path: PathBuf,
}

impl SqliteFile {
    /// The file at `path`.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    fn subject(&self) -> String {
        format!("file {}", self.path.display())
    }

    /// The path, quoted for a shell.
    fn shell_quoted(&self) -> String {
        format!("'{}'", self.path.display().to_string().replace('\'', r"'\''"))
    }

    fn sibling(&self, ending: &str) -> PathBuf {
        let mut path = self.path.clone().into_os_string();
        path.push(ending);
        path.into()
    }

    async fn connect(&self, options: SqliteConnectOptions) -> Result<SqliteConnection, sqlx::Error> {
        options.filename(&self.path).busy_timeout(BUSY_TIMEOUT).connect().await
    }

    /// Checks the integrity and the journal mode.
    async fn check_content(&self) -> Result<Vec<Finding>, sqlx::Error> {
        let mut connection = self.connect(SqliteConnectOptions::new().read_only(true)).await?;
        let rows = connection.fetch_all("pragma quick_check(3)").await?;
        let messages = rows.iter().map(|row| row.try_get(0)).collect::<Result<Vec<String>, _>>()?;
        let mode: String = connection.fetch_one("pragma journal_mode").await?.try_get(0)?;
        connection.close().await?;
        let mut findings = Vec::new();
        if messages != ["ok"] {
            findings.push(self.corrupt(&messages.join("; ")));
        } else if mode != "wal" {
            findings.push(
                Finding::warning("journal_mode", self.subject())
                    .because(format!(
                        "journal_mode is {mode}: readers wait for writers. The queues are checked after this is fixed"
                    ))
                    .fixed_by("pragma journal_mode = wal;"),
            );
        }
        Ok(findings)
    }

    fn corrupt(&self, messages: &str) -> Finding {
        let file = self.shell_quoted();
        let [repaired, corrupt] =
            [".repaired", ".corrupt"].map(|ending| SqliteFile::new(self.sibling(ending)).shell_quoted());
        let [wal, shm] = ["-wal", "-shm"].map(|ending| SqliteFile::new(self.sibling(ending)).shell_quoted());
        Finding::problem("corrupt", self.subject())
            .because(format!("the file is corrupt: {messages}. Stop all programs that use it and restore a backup; without a backup, the data on the corrupt pages is lost. The fix keeps the corrupt file next to it"))
            .fixed_by(format!(
                "sqlite3 {file} .dump | sed 's/^ROLLBACK.*/COMMIT;/' | sqlite3 {repaired} \
                 && mv {file} {corrupt} && mv {repaired} {file} && rm -f {wal} {shm} \
                 && sqlite3 {file} 'pragma journal_mode = wal'"
            ))
    }

    /// Checks whether the file can be written now. Takes the write lock for a moment.
    async fn check_writable(&self) -> Option<Finding> {
        let taken = async {
            let mut connection = self.connect(SqliteConnectOptions::new()).await?;
            connection.execute("begin immediate; rollback").await?;
            connection.close().await
        };
        let error = taken.await.err()?;
        if is_busy(&error) {
            return Some(
                Finding::warning("locked", self.subject())
                    .because(format!(
                        "another transaction has held the write lock for {BUSY_TIMEOUT:?}: no message can be staged or claimed"
                    ))
                    .fixed_by(format!(
                        "fuser -v {} # lists the processes that have it open: end the one that hangs",
                        self.shell_quoted()
                    )),
            );
        }
        Some(self.not_writable(&error))
    }

    fn not_writable(&self, error: &sqlx::Error) -> Finding {
        let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = SqliteFile::new(folder.unwrap_or(Path::new("."))).shell_quoted();
        Finding::problem("not_writable", self.subject())
            .because(format!("the file cannot be written: {error}"))
            .fixed_by(format!("chmod u+w {} {folder}", self.shell_quoted()))
    }

    fn check_wal(&self) -> Option<Finding> {
        let bytes = fs::metadata(self.sibling("-wal")).ok()?.len();
        (bytes > LARGE_WAL).then(|| {
            Finding::warning("big_wal", self.subject())
                .because(format!(
                    "its write-ahead log has {} MiB: a long read or a setting prevents checkpoints",
                    bytes >> 20
                ))
                .fixed_by("pragma wal_checkpoint(truncate);")
        })
    }

    fn check_filesystem(&self) -> Option<Finding> {
        let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
        let path = fs::canonicalize(&self.path).ok()?;
        let kind = filesystem(&mounts, &path)?;
        NETWORKS.contains(&kind).then(|| {
            Finding::problem("network_file", self.subject())
                .because(format!(
                    "the file is on {kind}, where SQLite's locks do not work: two machines can corrupt it"
                ))
                .fixed_by("move the file to a local disk, or use PostgreSQL")
        })
    }
}

/// The type of the file system of a path: that of the longest mount point above it, and of the last among equals.
fn filesystem<'m>(mounts: &'m str, path: &Path) -> Option<&'m str> {
    let mounts = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ').skip(1);
        Some((words.next()?, words.next()?))
    });
    let above = mounts.filter(|(at, _)| path.starts_with(at.replace("\\040", " ")));
    above.max_by_key(|(at, _)| at.len()).map(|(_, kind)| kind)
}

impl SqliteFile {
    /// Reports conditions of the file that lose messages or make calls slower, each with its fix: for a file that no store can open.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub async fn checkup(&self) -> Result<Vec<Finding>, Error> {
        fs::metadata(&self.path).map_err(|error: io::Error| Error::Unavailable(error.into()))?;
        let mut findings: Vec<_> = self.check_filesystem().into_iter().collect();
        match self.check_content().await {
            Ok(found) => findings.extend(found),
            Err(error) if primary_code(&error) == Some(CORRUPT) => {
                findings.push(self.corrupt(&error.to_string()));
            }
            // Without write access, not even the log can be read.
            Err(error) if primary_code(&error) == Some(READ_ONLY) => {
                return Ok(vec![self.not_writable(&error)]);
            }
            Err(error) if primary_code(&error) == Some(NOT_A_DATABASE) => {
                findings.push(
                    Finding::problem("not_a_database", self.subject())
                        .because("it is not an SQLite file, or it is encrypted")
                        .fixed_by("set the path to an SQLite file"),
                );
                return Ok(findings);
            }
            Err(error) => return Err(store_error(error)),
        }
        if !findings.iter().any(|finding| finding.code == "corrupt") {
            findings.extend(self.check_writable().await);
        }
        findings.extend(self.check_wal());
        Ok(findings)
    }
}

impl SqliteStore {
    pub(super) async fn checkup(&self, _: &CheckupRequest) -> Result<Vec<Finding>, Error> {
        SqliteFile::new(self.inner.options.path()).checkup().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filesystem_is_that_of_the_longest_mount_point() {
        let mounts = "rootfs / overlay rw 0 0\nserver:/data /data nfs4 rw 0 0\n/dev/sda1 /data/local\\040disk ext4 rw 0 0\n";
        let kind = |path: &str| filesystem(mounts, Path::new(path));
        assert_eq!(kind("/tmp/shop.db"), Some("overlay"));
        assert_eq!(kind("/data/shop.db"), Some("nfs4"));
        assert_eq!(kind("/data/local disk/shop.db"), Some("ext4"));
    }
}
