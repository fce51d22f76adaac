//! A private PostgreSQL: its own folder, its own port of the loopback interface, gone with its
//! value.

pub(crate) mod apt;
mod build;
mod fetch;
mod probe;

use std::fs::{self, File, Permissions};
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::sys::signal::Signal;
use tempfile::TempDir;

use crate::account::Account;
use crate::process::{self, Guard};
use crate::signals::Signals;
use crate::terminal::say;
use crate::version::Major;

pub(crate) use build::{Build, Missing};

/// Another process can take a port between its choice and its use.
const PORT_ATTEMPTS: usize = 5;
const READY_WITHIN: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(20);
const LOG_TAIL: usize = 30;

/// What a committed transaction survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Durability {
    /// A crash of the server, not of the machine. Nothing a test can observe, and much faster.
    Relaxed,
    /// Whatever PostgreSQL promises as installed: what a benchmark has to pay for.
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

/// What happens to the server's folder afterwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Afterwards {
    Remove,
    Keep,
}

/// A running server. Dropping it stops the server, then removes its folder.
#[derive(Debug)]
pub(crate) struct Postgres {
    // Dropped in this order: the folder must outlive the server.
    server: Guard,
    home: Home,
    port: u16,
    version: String,
}

impl Postgres {
    /// Creates a database cluster and starts a server on it.
    pub(crate) fn start(
        build: &Build,
        durability: Durability,
        afterwards: Afterwards,
        signals: &Signals,
    ) -> Result<Self> {
        let home = Home::create(build, durability, afterwards)?;
        for _ in 0..PORT_ATTEMPTS {
            signals.check()?;
            let port = free_port()?;
            let mut server = home.spawn(build, port, durability)?;
            if let Some(version) = home.wait_until_ready(&mut server, port, signals)? {
                return Ok(Self { server, home, port, version });
            }
        }
        bail!("no port stayed free in {PORT_ATTEMPTS} attempts to start PostgreSQL")
    }

    /// Where clients connect.
    pub(crate) fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres", self.port)
    }

    /// The process id of the server's first process, the parent of all others.
    pub(crate) fn id(&self) -> u32 {
        self.server.id()
    }

    /// The full version, such as `15.18`.
    pub(crate) fn version(&self) -> &str {
        &self.version
    }

    /// The folder with the data and the log.
    pub(crate) fn folder(&self) -> &Path {
        &self.home.path
    }

    /// Fails when the server ended by itself.
    pub(crate) fn check(&mut self) -> Result<()> {
        match self.server.exited()? {
            Some(status) => bail!("PostgreSQL ended by itself ({status})\n{}", self.home.log_tail()),
            None => Ok(()),
        }
    }
}

/// The folder of a server, and who owns it.
#[derive(Debug)]
struct Home {
    /// Removes the folder when dropped; `None` when it stays.
    _removal: Option<TempDir>,
    path: PathBuf,
    account: Account,
}

impl Home {
    fn create(build: &Build, durability: Durability, afterwards: Afterwards) -> Result<Self> {
        let account = Account::choose()?;
        if !process::succeeds(account.command(&build.program("postgres")).arg("--version")) {
            bail!(
                "{} cannot run {}: every folder above it must be open to that user (`chmod a+rx`); \
                 for a fetched server, CARGO_TARGET_DIR can point to a folder that is",
                account.name(),
                build.program("postgres").display()
            );
        }
        let folder = tempfile::Builder::new().prefix("postrider-postgres-").tempdir()?;
        // The server reports its folder with links resolved, and the probe compares the two.
        let path = folder.path().canonicalize()?;
        let removal = match afterwards {
            Afterwards::Remove => Some(folder),
            Afterwards::Keep => {
                say(&format!("keeping the server's folder {}", folder.keep().display()));
                None
            }
        };
        let home = Self { _removal: removal, path, account };
        // Temporary folders are private to their creator; the server's account has to pass.
        fs::set_permissions(&home.path, Permissions::from_mode(0o755))?;
        fs::create_dir(home.data())?;
        fs::set_permissions(home.data(), Permissions::from_mode(0o700))?;
        home.account.own(&home.data())?;

        let mut initdb = home.command(build, "initdb");
        initdb.arg("--pgdata").arg(home.data());
        initdb.args(["--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C.UTF-8"]);
        if durability == Durability::Relaxed {
            initdb.arg("--no-sync");
        }
        process::output(&mut initdb)?;
        Ok(home)
    }

    fn data(&self) -> PathBuf {
        self.path.join("data")
    }

    fn log(&self) -> PathBuf {
        self.path.join("log")
    }

    fn command(&self, build: &Build, program: &str) -> Command {
        let mut command = self.account.command(&build.program(program));
        // Messages in English, and a working folder that the account can enter.
        command.env("LC_ALL", "C").current_dir(&self.path);
        command
    }

    fn spawn(&self, build: &Build, port: u16, durability: Durability) -> Result<Guard> {
        let log = File::create(self.log())?;
        let mut postgres = self.command(build, "postgres");
        postgres.arg("-D").arg(self.data()).stdout(log.try_clone()?).stderr(log);
        let port = format!("port={port}");
        let common = [
            port.as_str(),
            "listen_addresses=127.0.0.1",
            "unix_socket_directories=",
            "max_connections=300",
            "shared_buffers=256MB",
        ];
        for setting in common.iter().chain(durability.settings()) {
            postgres.args(["-c", setting]);
        }
        // SIGINT is the fast shutdown: it ends sessions instead of waiting for them.
        Guard::spawn(&mut postgres, Signal::SIGINT)
    }

    /// Waits until the server answers a query and returns its version; `None` when its port was
    /// taken.
    fn wait_until_ready(&self, server: &mut Guard, port: u16, signals: &Signals) -> Result<Option<String>> {
        let deadline = Instant::now() + READY_WITHIN;
        loop {
            signals.check()?;
            if let Some(status) = server.exited()? {
                if self.log_text().contains("could not bind") {
                    return Ok(None);
                }
                bail!("PostgreSQL ended while starting ({status})\n{}", self.log_tail());
            }
            // The port opens before the server takes queries, and may even be another server's.
            let obstacle = match probe::identify(port) {
                Ok(identity) if identity.data == self.data() => return Ok(Some(identity.version)),
                Ok(identity) => format!("port {port} belongs to {}", identity.data.display()),
                Err(error) => error.to_string(),
            };
            if Instant::now() > deadline {
                let seconds = READY_WITHIN.as_secs();
                bail!("PostgreSQL is not ready after {seconds} s: {obstacle}\n{}", self.log_tail());
            }
            sleep(POLL);
        }
    }

    fn log_text(&self) -> String {
        fs::read(self.log()).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
    }

    fn log_tail(&self) -> String {
        let text = self.log_text();
        let lines: Vec<_> = text.lines().collect();
        let tail = &lines[lines.len().saturating_sub(LOG_TAIL)..];
        format!("the end of its log:\n{}", tail.join("\n"))
    }
}

fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

/// Finds, installs or fetches a build for every wanted version, before anything is started.
pub(crate) fn builds(wanted: &[Major], missing: Missing) -> Result<Vec<Build>> {
    if wanted.is_empty() {
        return Ok(vec![Build::usual(missing).context("no PostgreSQL 14 or newer")?]);
    }
    wanted
        .iter()
        .map(|major| Build::of(*major, missing).with_context(|| format!("no PostgreSQL {major}")))
        .collect()
}
