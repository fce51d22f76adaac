//! The servers of one run: started in parallel, in one folder.

use std::env;
use std::path::{Path, PathBuf};
use std::thread;

use anyhow::Result;
use postrider_servers::{Cleanup, Kind, Server, TempFolder};

use crate::signals::Signals;
use crate::terminal::info;

/// A server that a run needs.
#[derive(Debug, Clone)]
pub(crate) struct RequiredServer {
    pub(crate) kind: Kind,
    /// The folder of its programs.
    pub(crate) programs: PathBuf,
}

impl RequiredServer {
    /// Whether the caller's environment provides this server.
    pub(crate) fn is_external(&self) -> bool {
        env::var_os(self.kind.url_variable()).is_some_and(|url| !url.is_empty())
    }
}

/// Running servers. Dropping this value stops them, then removes their folder.
#[derive(Debug)]
pub(crate) struct RunningServers {
    // Dropped in this order: the folder must outlive the servers.
    servers: Servers,
    _folder: TempFolder,
}

/// Stopped in parallel when dropped.
#[derive(Debug, Default)]
struct Servers(Vec<Server>);

impl RunningServers {
    /// Starts all servers in a new folder of `scratch`, and returns when each of them is ready.
    pub(crate) fn start(
        required: &[RequiredServer],
        scratch: &Path,
        cleanup: Cleanup,
        signals: &Signals,
    ) -> Result<Self> {
        signals.check()?;
        let folder = TempFolder::create_in(scratch, cleanup)?;
        if cleanup == Cleanup::Keep {
            info(&format!("keeping the servers' folder {}", folder.path().display()));
        }
        let started: Vec<Result<Server>> = thread::scope(|scope| {
            let start = |required: &RequiredServer| {
                Server::start(required.kind.spec(&required.programs), &folder, &|| signals.pending())
            };
            let threads: Vec<_> =
                required.iter().map(|required| scope.spawn(move || start(required))).collect();
            let joined = threads.into_iter().map(thread::ScopedJoinHandle::join);
            joined.map(|result| result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
        });
        let mut cluster = Self { servers: Servers::default(), _folder: folder };
        let mut failure = None;
        for server in started {
            match server {
                Ok(server) => cluster.servers.0.push(server),
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        failure.map_or(Ok(cluster), Err)
    }

    /// The servers.
    pub(crate) fn servers(&self) -> &[Server] {
        &self.servers.0
    }

    /// The names and versions of the servers.
    pub(crate) fn versions(&self) -> String {
        let each = self.servers().iter().map(|server| format!("{} {}", server.kind(), server.version()));
        each.collect::<Vec<_>>().join(", ")
    }

    /// The environment variables with the URLs of the servers.
    pub(crate) fn urls(&self) -> impl Iterator<Item = (&'static str, String)> {
        self.servers().iter().map(|server| (server.kind().url_variable(), server.url()))
    }

    /// Fails if a server has exited by itself.
    pub(crate) fn check(&mut self) -> Result<()> {
        self.servers.0.iter_mut().try_for_each(Server::check)
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        thread::scope(|scope| {
            for server in self.0.drain(..) {
                scope.spawn(move || drop(server));
            }
        });
    }
}
