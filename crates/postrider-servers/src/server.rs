//! A running server.

use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::sys::signal::Signal;

use crate::kind::Kind;
use crate::ports::{are_free, free_ports};
use crate::process_guard::ProcessGuard;
use crate::server_dir::ServerDir;
use crate::spec::ServerSpec;
use crate::temp_folder::TempFolder;

/// Another process can take a port between the choice and the start.
const PORT_ATTEMPTS: usize = 5;
/// Long enough for two cores that start all servers and compile at the same time.
const READY_WITHIN: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_millis(20);
/// How servers log that another process has their port.
const PORT_TAKEN: [&str; 2] = ["address already in use", "eaddrinuse"];

/// A running server. Dropping it stops the server.
#[derive(Debug)]
pub struct Server {
    spec: Box<dyn ServerSpec>,
    dir: ServerDir,
    ports: Vec<u16>,
    version: String,
    /// In the order of their start; the last one is the server. Empty while it is stopped.
    processes: Vec<ProcessGuard>,
    /// Whether it has replied since its start.
    ready: bool,
    /// The length of the log when these processes were started.
    log_start: usize,
}

impl Server {
    /// Starts a server in a folder, and returns when it is ready. Stops waiting when `interrupted` returns `true`.
    pub fn start(
        spec: Box<dyn ServerSpec>,
        folder: &TempFolder,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<Self> {
        let kind = spec.kind();
        let dir = ServerDir::create(folder, kind.name())?;
        let attempt = || -> Result<Self> {
            spec.prepare(&dir)?;
            let mut server = Self {
                spec,
                dir,
                ports: Vec::new(),
                version: String::new(),
                processes: Vec::new(),
                ready: false,
                log_start: 0,
            };
            for _ in 0..PORT_ATTEMPTS {
                server.ports = free_ports(server.spec.ports())?;
                server.spawn(interrupted)?;
                if server.wait_until_ready(interrupted)? {
                    return Ok(server);
                }
            }
            bail!("no port stayed free in {PORT_ATTEMPTS} attempts")
        };
        attempt().with_context(|| format!("cannot start {kind}"))
    }

    /// The kind of server.
    pub fn kind(&self) -> Kind {
        self.spec.kind()
    }

    /// The URL for clients.
    pub fn url(&self) -> String {
        self.spec.url(&self.ports)
    }

    /// The port that clients use.
    pub fn port(&self) -> u16 {
        self.ports.first().copied().unwrap_or_default()
    }

    /// The process id of its first process, the parent of all others. `None` while it is stopped.
    pub fn id(&self) -> Option<u32> {
        self.processes.last().map(ProcessGuard::id)
    }

    /// The process ids of the server and its auxiliary programs, which come first.
    pub fn ids(&self) -> Vec<u32> {
        self.processes.iter().map(ProcessGuard::id).collect()
    }

    /// The version that it reports, such as `15.18`.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The folder with data and log.
    pub fn folder(&self) -> &Path {
        self.dir.path()
    }

    /// Fails if the server has exited by itself.
    pub fn check(&mut self) -> Result<()> {
        for process in &mut self.processes {
            if let Some(status) = process.exited()? {
                bail!("{} exited unexpectedly ({status})\n{}", self.spec.kind(), self.dir.log_tail());
            }
        }
        Ok(())
    }

    /// Stops it: gracefully if it is ready, and at once if not, because a starting server may ignore the signal. Keeps its data.
    pub fn stop(&mut self) -> Result<()> {
        self.end(if self.ready { self.spec.stop() } else { self.spec.crash() })
    }

    /// Ends it as a crash does. Keeps its data.
    pub fn crash(&mut self) -> Result<()> {
        self.end(self.spec.crash())
    }

    fn end(&mut self, signal: Signal) -> Result<()> {
        self.ready = false;
        if let Some(mut server) = self.processes.pop() {
            server.stop(signal)?;
        }
        // The auxiliary programs, last started first.
        while let Some(mut auxiliary) = self.processes.pop() {
            auxiliary.stop(Signal::SIGTERM)?;
        }
        Ok(())
    }

    /// Restarts it after a stop, on the same ports and data, and returns when it is ready.
    pub fn resume(&mut self, interrupted: &dyn Fn() -> bool) -> Result<()> {
        let deadline = Instant::now() + READY_WITHIN;
        while Instant::now() < deadline {
            self.spawn(interrupted)?;
            if self.wait_until_ready(interrupted)? {
                return Ok(());
            }
            // Another process has the port for a moment.
            sleep(POLL);
        }
        bail!("the ports of {} are in use:\n{}", self.kind(), self.dir.log_tail())
    }

    fn spawn(&mut self, interrupted: &dyn Fn() -> bool) -> Result<()> {
        self.stop()?;
        // Preparing takes a while, and a server that has just begun to start ignores signals.
        check(interrupted)?;
        self.log_start = self.dir.log_text().len();
        let commands = self.spec.commands(&self.dir, &self.ports);
        let count = commands.len();
        for (index, command) in commands.into_iter().enumerate() {
            let stop = if index + 1 == count { self.spec.stop() } else { Signal::SIGTERM };
            self.processes.push(self.dir.spawn(command, stop)?);
        }
        Ok(())
    }

    /// Waits until the server is ready; returns `false` if another process has its port.
    fn wait_until_ready(&mut self, interrupted: &dyn Fn() -> bool) -> Result<bool> {
        let deadline = Instant::now() + READY_WITHIN;
        loop {
            check(interrupted)?;
            if let Err(ended) = self.check() {
                return if self.was_port_taken()? { Ok(false) } else { Err(ended) };
            }
            let Some(id) = self.id() else { bail!("no process was started") };
            // A port can be open before the server accepts work, and can even belong to another server.
            match self.spec.identify(&self.dir, &self.ports, id) {
                Ok(version) => {
                    self.version = version;
                    self.ready = true;
                    return Ok(true);
                }
                Err(error) if Instant::now() > deadline => {
                    let seconds = READY_WITHIN.as_secs();
                    bail!("not ready after {seconds} s: {error:#}\n{}", self.dir.log_tail());
                }
                Err(_) => sleep(POLL),
            }
        }
    }

    /// Whether a server that exited during its start did so because of its port. Most servers log it, and the port may be free
    /// again by now; `epmd` does not log it.
    fn was_port_taken(&mut self) -> Result<bool> {
        self.stop()?;
        let log = self.dir.log_text();
        let text = log.get(self.log_start..).unwrap_or_default().to_lowercase();
        Ok(PORT_TAKEN.iter().any(|words| text.contains(words)) || !are_free(&self.ports))
    }
}

fn check(interrupted: &dyn Fn() -> bool) -> Result<()> {
    if interrupted() {
        bail!("interrupted");
    }
    Ok(())
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Err(error) = self.stop() {
            eprintln!("cannot stop {}: {error:#}", self.kind());
        }
    }
}
