//! PostgreSQL.

mod probe;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, bail};
use nix::sys::signal::Signal;

use crate::kind::Kind;
use crate::process;
use crate::server_dir::ServerDir;
use crate::spec::ServerSpec;

/// The data folder, in the server's folder.
const DATA: &str = "data";

/// The failures that a committed transaction survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// A crash of the server, but not of the machine. Tests cannot observe the difference, and run much faster.
    Relaxed,
    /// A crash of the machine, as with PostgreSQL's default settings. For benchmarks.
    Full,
}

impl Durability {
    fn settings(self) -> &'static [&'static str] {
        match self {
            // `synchronous_commit` stays on: it changes when other sessions see a commit.
            Self::Relaxed => &["fsync=off", "full_page_writes=off"],
            Self::Full => &[],
        }
    }
}

/// How to run PostgreSQL.
#[derive(Debug, Clone)]
pub struct Postgres {
    programs: PathBuf,
    durability: Durability,
    standby_of: Option<PrimaryServer>,
}

/// The server that a standby follows.
#[derive(Debug, Clone)]
struct PrimaryServer {
    data: PathBuf,
    port: u16,
}

impl Postgres {
    /// Uses the programs in the folder `programs`.
    pub fn new(programs: &Path, durability: Durability) -> Self {
        Self { programs: programs.to_path_buf(), durability, standby_of: None }
    }

    /// A streaming standby, named `standby`, of the server in the folder `primary`, which must be stopped: the standby begins as a copy of
    /// its data. It connects to the primary on `port`.
    #[must_use]
    pub fn standby_of(self, primary: &Path, port: u16) -> Self {
        Self { standby_of: Some(PrimaryServer { data: primary.join(DATA), port }), ..self }
    }

    fn copy_primary(&self, dir: &ServerDir, primary: &PrimaryServer) -> Result<()> {
        let data = Self::data(dir);
        process::output(dir.command(Path::new("cp"), self.crash()).arg("-a").arg(&primary.data).arg(&data))?;
        dir.file(&format!("{DATA}/standby.signal"), "")?;
        let port = primary.port;
        let settings = format!(
            "primary_conninfo = 'host=127.0.0.1 port={port} user=postgres application_name=standby'\n\
             wal_retrieve_retry_interval = 100ms\n"
        );
        // A file of its own: `alter system` of the primary must not reach it.
        dir.file(&format!("{DATA}/postgresql.auto.conf"), &settings).map(drop)
    }

    fn data(dir: &ServerDir) -> PathBuf {
        dir.path().join(DATA)
    }
}

impl ServerSpec for Postgres {
    fn kind(&self) -> Kind {
        Kind::Postgres
    }

    fn ports(&self) -> usize {
        1
    }

    fn prepare(&self, dir: &ServerDir) -> Result<()> {
        dir.check(&self.programs.join("postgres"))?;
        if let Some(primary) = &self.standby_of {
            return self.copy_primary(dir, primary);
        }
        let mut initdb = dir.command(&self.programs.join("initdb"), self.crash());
        initdb.arg("--pgdata").arg(Self::data(dir));
        initdb.args(["--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C.UTF-8"]);
        if self.durability == Durability::Relaxed {
            initdb.arg("--no-sync");
        }
        process::output(&mut initdb).map(drop)
    }

    fn commands(&self, dir: &ServerDir, ports: &[u16]) -> Vec<Command> {
        let mut postgres = dir.command(&self.programs.join("postgres"), self.crash());
        postgres.arg("-D").arg(Self::data(dir));
        let port = format!("port={}", ports[0]);
        let common = [
            port.as_str(),
            "listen_addresses=127.0.0.1",
            "unix_socket_directories=",
            "max_connections=300",
            "max_prepared_transactions=20",
            "shared_buffers=256MB",
        ];
        for setting in common.iter().chain(self.durability.settings()) {
            postgres.args(["-c", setting]);
        }
        vec![postgres]
    }

    fn identify(&self, dir: &ServerDir, ports: &[u16], _: u32) -> Result<String> {
        let identity = probe::identify(ports[0])?;
        if identity.data != Self::data(dir) {
            bail!("port {} belongs to another server, {}", ports[0], identity.data.display());
        }
        Ok(identity.version)
    }

    fn url(&self, ports: &[u16]) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres", ports[0])
    }

    fn stop(&self) -> Signal {
        // Fast shutdown: ends sessions instead of waiting for them.
        Signal::SIGINT
    }

    fn crash(&self) -> Signal {
        // Immediate shutdown: ends within seconds, and unlike SIGKILL it releases the shared memory.
        Signal::SIGQUIT
    }
}
