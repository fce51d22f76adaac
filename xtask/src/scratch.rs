//! The folder for the files of tests and their servers.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use postrider_servers::Cleanup;

/// The variable that names the folder, for child processes and from the caller.
pub(crate) const VARIABLE: &str = "TMPDIR";

/// A folder in memory, if the system has one.
const IN_MEMORY: &str = "/dev/shm";

/// The space that a whole run may need; the highest use measured is 1.4 GB.
const SPACE_NEEDED: u64 = 6 << 30;

/// The folder that the caller names; else a folder in memory, where a thousand databases are created ten times as fast as on a
/// disk; else the system's temporary folder, if memory is short or the files are kept.
pub(crate) fn folder(cleanup: Cleanup) -> PathBuf {
    let is_external = env::var_os(VARIABLE).is_some_and(|folder| !folder.is_empty());
    let in_memory = Path::new(IN_MEMORY);
    if !is_external && cleanup == Cleanup::Remove && has_space(in_memory) {
        in_memory.to_path_buf()
    } else {
        env::temp_dir()
    }
}

/// Whether a folder is in memory.
pub(crate) fn is_in_memory(folder: &Path) -> bool {
    free_in_memory(folder).is_some()
}

/// Whether a folder in memory has enough free space, and the machine has twice as much free memory: files in the folder use up
/// the memory of everything else.
fn has_space(folder: &Path) -> bool {
    let memory = || {
        let limit =
            fs::read_to_string("/sys/fs/cgroup/memory.max").ok().and_then(|it| it.trim().parse().ok());
        let available = fs::read_to_string("/proc/meminfo").ok().and_then(|memory| available(&memory));
        available.unwrap_or(0).min(limit.unwrap_or(u64::MAX))
    };
    free_in_memory(folder).is_some_and(|free| free >= SPACE_NEEDED)
        && memory() >= 2 * SPACE_NEEDED
        && tempfile::tempfile_in(folder).is_ok()
}

/// The free bytes of a folder in memory; `None` if the folder is on a disk.
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

/// The free bytes of a folder in memory; `None` if the folder is on a disk.
#[cfg(not(target_os = "linux"))]
fn free_in_memory(_: &Path) -> Option<u64> {
    None
}

/// The bytes of available memory, from the text of `/proc/meminfo`.
fn available(memory: &str) -> Option<u64> {
    let line = memory.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok().map(|kilobytes| kilobytes << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_files_are_not_in_memory() {
        assert_eq!(folder(Cleanup::Keep), env::temp_dir());
    }

    #[test]
    fn a_missing_folder_has_no_space() {
        assert!(!has_space(Path::new("/no/such/folder")));
    }

    #[test]
    fn available_memory_is_read() {
        assert_eq!(available("MemTotal: 10 kB\nMemAvailable:       3 kB\n"), Some(3 << 10));
        assert_eq!(available("MemTotal: 10 kB\n"), None);
    }
}
