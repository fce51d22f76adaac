//! The servers of one run: started side by side, under one folder.

use std::env;
use std::path::{Path, PathBuf};
use std::thread;

use anyhow::Result;
use postrider_servers::{Afterwards, Folder, Kind, Server};

use crate::signals::Signals;
use crate::terminal::say;

/// A server that a run needs.
#[derive(Debug, Clone)]
pub(crate) struct Wanted {
    pub(crate) kind: Kind,
    /// The folder of its programs.
    pub(crate) programs: PathBuf,
}

impl Wanted {
    /// Whether the caller's environment names a server to use instead.
    pub(crate) fn is_named(&self) -> bool {
        env::var_os(self.kind.url_variable()).is_some_and(|url| !url.is_empty())
    }
}

/// Running servers. Dropping them stops them, then removes their folder.
#[derive(Debug)]
pub(crate) struct Fleet {
    // Dropped in this order: the folder must outlive the servers.
    servers: Servers,
    _folder: Folder,
}

/// Stopped side by side, too.
#[derive(Debug, Default)]
struct Servers(Vec<Server>);

impl Fleet {
    /// Starts all of them in a new folder of `scratch`, and returns when each of them answers.
    pub(crate) fn start(
        wanted: &[Wanted],
        scratch: &Path,
        afterwards: Afterwards,
        signals: &Signals,
    ) -> Result<Self> {
        signals.check()?;
        let folder = Folder::create_in(scratch, afterwards)?;
        if afterwards == Afterwards::Keep {
            say(&format!("keeping the servers' folder {}", folder.path().display()));
        }
        let started: Vec<Result<Server>> = thread::scope(|scope| {
            let start = |wanted: &Wanted| {
                Server::start(wanted.kind.recipe(&wanted.programs), &folder, &|| signals.pending())
            };
            let threads: Vec<_> = wanted.iter().map(|wanted| scope.spawn(move || start(wanted))).collect();
            let joined = threads.into_iter().map(thread::ScopedJoinHandle::join);
            joined.map(|result| result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
        });
        let mut fleet = Self { servers: Servers::default(), _folder: folder };
        let mut failure = None;
        for server in started {
            match server {
                Ok(server) => fleet.servers.0.push(server),
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        failure.map_or(Ok(fleet), Err)
    }

    /// The servers.
    pub(crate) fn servers(&self) -> &[Server] {
        &self.servers.0
    }

    /// Their names and versions.
    pub(crate) fn versions(&self) -> String {
        let each = self.servers().iter().map(|server| format!("{} {}", server.kind(), server.version()));
        each.collect::<Vec<_>>().join(", ")
    }

    /// What tells tests where they are.
    pub(crate) fn urls(&self) -> impl Iterator<Item = (&'static str, String)> {
        self.servers().iter().map(|server| (server.kind().url_variable(), server.url()))
    }

    /// Fails when one of them ended by itself.
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
