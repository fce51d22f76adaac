//! CPU time of the server's processes and of this one. Linux only; elsewhere it is not shown.

use std::{env, fs, path::Path, time::Duration};

/// The variable with the process id of PostgreSQL.
const PID: &str = "POSTRIDER_BENCH_POSTGRES_PID";

/// The processes of a server.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Server {
    postmaster: Option<u32>,
}

impl Server {
    /// The server whose process id is in the environment.
    pub(crate) fn named() -> Self {
        Self { postmaster: env::var(PID).ok().and_then(|id| id.parse().ok()) }
    }

    /// The CPU time of its processes so far, including those that have ended.
    pub(crate) fn cpu(self) -> Option<Duration> {
        let postmaster = self.postmaster?;
        // The time of ended children counts in their parent, so the sum never falls.
        let mut used = on_cpu(postmaster)? + ended_children(postmaster)?;
        let children = fs::read_to_string(format!("/proc/{postmaster}/task/{postmaster}/children")).ok()?;
        for child in children.split_whitespace().filter_map(|pid| pid.parse().ok()) {
            // A process may end between the two reads.
            used += on_cpu(child).unwrap_or_default();
        }
        Some(used)
    }
}

/// The CPU time of this process so far.
pub(crate) fn own() -> Option<Duration> {
    let threads = fs::read_dir("/proc/self/task").ok()?;
    Some(threads.flatten().filter_map(|thread| schedstat(&thread.path())).sum())
}

fn on_cpu(pid: u32) -> Option<Duration> {
    schedstat(Path::new(&format!("/proc/{pid}")))
}

fn schedstat(folder: &Path) -> Option<Duration> {
    let text = fs::read_to_string(folder.join("schedstat")).ok()?;
    text.split_whitespace().next()?.parse().ok().map(Duration::from_nanos)
}

/// User and system time of the children that were waited for, in hundredths of a second.
fn ended_children(pid: u32) -> Option<Duration> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is a name in parentheses, which may contain spaces.
    let (_, fields) = text.rsplit_once(')')?;
    let ticks = |field: usize| fields.split_whitespace().nth(field)?.parse::<u64>().ok();
    Some(Duration::from_millis((ticks(13)? + ticks(14)?) * 10))
}
