//! Where tests and their servers keep their files.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use postrider_servers::Afterwards;

/// The variable by which programs are told, and by which a caller chooses.
pub(crate) const VARIABLE: &str = "TMPDIR";

/// A folder in memory, where there is one.
const IN_MEMORY: &str = "/dev/shm";

/// What a whole run may need of it: 1.4 GB were the most that was seen in use.
const ROOM: u64 = 6 << 30;

/// The folder that the caller names; else memory, where a thousand databases are made ten times as fast as on a disk; else, where
/// memory is short or the files are to stay, the system's.
pub(crate) fn folder(afterwards: Afterwards) -> PathBuf {
    let is_named = env::var_os(VARIABLE).is_some_and(|folder| !folder.is_empty());
    let in_memory = Path::new(IN_MEMORY);
    if !is_named && afterwards == Afterwards::Remove && has_room(in_memory) {
        in_memory.to_path_buf()
    } else {
        env::temp_dir()
    }
}

/// Whether a folder is in memory.
pub(crate) fn is_in_memory(folder: &Path) -> bool {
    free_in_memory(folder).is_some()
}

/// Whether a folder in memory has room, and the machine has it twice: what is in the folder is gone for everybody else.
fn has_room(folder: &Path) -> bool {
    let memory = || {
        let limit =
            fs::read_to_string("/sys/fs/cgroup/memory.max").ok().and_then(|it| it.trim().parse().ok());
        let available = fs::read_to_string("/proc/meminfo").ok().and_then(|memory| available(&memory));
        available.unwrap_or(0).min(limit.unwrap_or(u64::MAX))
    };
    free_in_memory(folder).is_some_and(|free| free >= ROOM)
        && memory() >= 2 * ROOM
        && tempfile::tempfile_in(folder).is_ok()
}

/// The bytes that are free in a folder that is in memory; none where it is on a disk.
#[cfg(target_os = "linux")]
fn free_in_memory(folder: &Path) -> Option<u64> {
    use nix::sys::{
        statfs::{TMPFS_MAGIC, statfs},
        statvfs::statvfs,
    };

    let kind = statfs(folder).ok()?.filesystem_type();
    let system = statvfs(folder).ok()?;
    (kind == TMPFS_MAGIC).then(|| system.blocks_available().saturating_mul(system.fragment_size()))
}

/// The bytes that are free in a folder that is in memory; none where it is on a disk.
#[cfg(not(target_os = "linux"))]
fn free_in_memory(_: &Path) -> Option<u64> {
    None
}

/// The bytes of memory that programs can still get, as `/proc/meminfo` tells.
fn available(memory: &str) -> Option<u64> {
    let line = memory.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok().map(|kilobytes| kilobytes << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_not_in_memory() {
        assert_eq!(folder(Afterwards::Keep), env::temp_dir());
    }

    #[test]
    fn a_folder_that_is_not_there_has_no_room() {
        assert!(!has_room(Path::new("/no/such/folder")));
    }

    #[test]
    fn available_memory_is_read() {
        assert_eq!(available("MemTotal: 10 kB\nMemAvailable:       3 kB\n"), Some(3 << 10));
        assert_eq!(available("MemTotal: 10 kB\n"), None);
    }
}
