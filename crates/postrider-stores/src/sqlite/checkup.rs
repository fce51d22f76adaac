//! Looking the file over. Opening a store turns write-ahead logging on, so whoever wants to know how the file is looks at it first.

use super::{
    SqliteStore,
    error::{code, is_busy, store_error},
};
use async_trait::async_trait;
use postrider_core::{Checkup, CheckupRequest, Error, Finding};
use sqlx::{ConnectOptions, Connection, Executor, Row, SqliteConnection, sqlite::SqliteConnectOptions};
use std::{
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

/// A checkpoint is made after four megabytes of it, unless somebody reads for long.
const BIG_WAL: u64 = 64 << 20;
/// Our own writes are done within milliseconds.
const PATIENCE: Duration = Duration::from_secs(2);
/// Where locks between processes, or the shared memory of the log, do not work.
const NETWORKS: [&str; 10] =
    ["nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "fuse.sshfs", "fuse.glusterfs", "ceph"];

const READ_ONLY: i32 = 8;
const CORRUPT: i32 = 11;
const NOT_A_DATABASE: i32 = 26;

fn primary(error: &sqlx::Error) -> Option<i32> {
    code(error).map(|code| code & 0xff)
}

/// A file of SQLite, as it lies there. Nothing is made or changed by looking at it.
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

    /// The path as a shell takes it.
    fn word(&self) -> String {
        format!("'{}'", self.path.display().to_string().replace('\'', r"'\''"))
    }

    fn beside(&self, ending: &str) -> PathBuf {
        let mut path = self.path.clone().into_os_string();
        path.push(ending);
        path.into()
    }

    async fn connect(&self, options: SqliteConnectOptions) -> Result<SqliteConnection, sqlx::Error> {
        options.filename(&self.path).busy_timeout(PATIENCE).connect().await
    }

    /// What is told by the file itself.
    async fn content(&self) -> Result<Vec<Finding>, sqlx::Error> {
        let mut connection = self.connect(SqliteConnectOptions::new().read_only(true)).await?;
        let rows = connection.fetch_all("pragma quick_check(3)").await?;
        let said = rows.iter().map(|row| row.try_get(0)).collect::<Result<Vec<String>, _>>()?;
        let mode: String = connection.fetch_one("pragma journal_mode").await?.try_get(0)?;
        connection.close().await?;
        let mut findings = Vec::new();
        if said != ["ok"] {
            findings.push(self.corrupt(&said.join("; ")));
        } else if mode != "wal" {
            findings.push(
                Finding::warning("journal_mode", self.subject())
                    .because(format!(
                        "journal_mode is {mode}: whoever reads waits for whoever writes. The queues are looked at when that is mended"
                    ))
                    .fixed_by("pragma journal_mode = wal;"),
            );
        }
        Ok(findings)
    }

    fn corrupt(&self, said: &str) -> Finding {
        let file = self.word();
        let [mended, damaged] =
            [".mended", ".damaged"].map(|ending| SqliteFile::new(self.beside(ending)).word());
        let [wal, shm] = ["-wal", "-shm"].map(|ending| SqliteFile::new(self.beside(ending)).word());
        Finding::problem("corrupt", self.subject())
            .because(format!("it is damaged: {said}. Stop whatever uses it, and restore a backup; without one, what stood on the damaged pages is lost. The damaged file stays beside it"))
            .fixed_by(format!(
                "sqlite3 {file} .dump | sed 's/^ROLLBACK.*/COMMIT;/' | sqlite3 {mended} \
                 && mv {file} {damaged} && mv {mended} {file} && rm -f {wal} {shm} \
                 && sqlite3 {file} 'pragma journal_mode = wal'"
            ))
    }

    /// Whether it can be written to, now. Takes the lock for a moment.
    async fn writing(&self) -> Option<Finding> {
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
                        "somebody has been writing for {PATIENCE:?}: nobody else can stage or claim"
                    ))
                    .fixed_by(format!(
                        "fuser -v {} # names who has it open: end the one that hangs",
                        self.word()
                    )),
            );
        }
        Some(self.not_writable(&error))
    }

    fn not_writable(&self, error: &sqlx::Error) -> Finding {
        let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = SqliteFile::new(folder.unwrap_or(Path::new("."))).word();
        Finding::problem("not_writable", self.subject())
            .because(format!("nothing can be written to it: {error}"))
            .fixed_by(format!("chmod u+w {} {folder}", self.word()))
    }

    fn log(&self) -> Option<Finding> {
        let bytes = fs::metadata(self.beside("-wal")).ok()?.len();
        (bytes > BIG_WAL).then(|| {
            Finding::warning("big_wal", self.subject())
                .because(format!(
                    "{} MiB wait in its write-ahead log: somebody reads for long, or keeps checkpoints from happening",
                    bytes >> 20
                ))
                .fixed_by("pragma wal_checkpoint(truncate);")
        })
    }

    fn network(&self) -> Option<Finding> {
        let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
        let path = fs::canonicalize(&self.path).ok()?;
        let kind = filesystem(&mounts, &path)?;
        NETWORKS.contains(&kind).then(|| {
            Finding::problem("network_file", self.subject())
                .because(format!(
                    "it lies on {kind}, where locks of SQLite do not hold: two machines may spoil it"
                ))
                .fixed_by("move it to a disk of this machine, or use PostgreSQL")
        })
    }
}

/// The kind of the filesystem that a path lies on: that of the longest mount above it, and of the last among equals.
fn filesystem<'m>(mounts: &'m str, path: &Path) -> Option<&'m str> {
    let mounts = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ').skip(1);
        Some((words.next()?, words.next()?))
    });
    let above = mounts.filter(|(at, _)| path.starts_with(at.replace("\\040", " ")));
    above.max_by_key(|(at, _)| at.len()).map(|(_, kind)| kind)
}

#[async_trait]
impl Checkup for SqliteFile {
    async fn checkup(&self, _: &CheckupRequest) -> Result<Vec<Finding>, Error> {
        fs::metadata(&self.path).map_err(|error: io::Error| Error::Unavailable(error.into()))?;
        let mut findings: Vec<_> = self.network().into_iter().collect();
        match self.content().await {
            Ok(found) => findings.extend(found),
            Err(error) if primary(&error) == Some(CORRUPT) => findings.push(self.corrupt(&error.to_string())),
            // The log cannot even be read where nothing can be written.
            Err(error) if primary(&error) == Some(READ_ONLY) => return Ok(vec![self.not_writable(&error)]),
            Err(error) if primary(&error) == Some(NOT_A_DATABASE) => {
                findings.push(
                    Finding::problem("not_a_database", self.subject())
                        .because("it is something else than a file of SQLite, or encrypted")
                        .fixed_by("give the path of a file of SQLite"),
                );
                return Ok(findings);
            }
            Err(error) => return Err(store_error(error)),
        }
        if !findings.iter().any(|finding| finding.code == "corrupt") {
            findings.extend(self.writing().await);
        }
        findings.extend(self.log());
        Ok(findings)
    }
}

#[async_trait]
impl Checkup for SqliteStore {
    async fn checkup(&self, request: &CheckupRequest) -> Result<Vec<Finding>, Error> {
        SqliteFile::new(self.inner.options.path()).checkup(request).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_mount_above_a_path_is_its_own() {
        let mounts = "rootfs / overlay rw 0 0\nserver:/data /data nfs4 rw 0 0\n/dev/sda1 /data/local\\040disk ext4 rw 0 0\n";
        let kind = |path: &str| filesystem(mounts, Path::new(path));
        assert_eq!(kind("/tmp/shop.db"), Some("overlay"));
        assert_eq!(kind("/data/shop.db"), Some("nfs4"));
        assert_eq!(kind("/data/local disk/shop.db"), Some("ext4"));
    }
}
