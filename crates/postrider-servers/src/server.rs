//! A running server.

use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::sys::signal::Signal;

use crate::folder::Folder;
use crate::guard::Guard;
use crate::home::Home;
use crate::kind::Kind;
use crate::ports::{are_free, free_ports};
use crate::recipe::Recipe;

/// Another process can take a port between its choice and its use.
const PORT_ATTEMPTS: usize = 5;
/// Two cores may have to start all servers and compile something, too.
const READY_WITHIN: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_millis(20);
/// How servers say that somebody else has their port.
const PORT_TAKEN: [&str; 2] = ["address already in use", "eaddrinuse"];

/// A running server. Dropping it stops the server.
#[derive(Debug)]
pub struct Server {
    recipe: Box<dyn Recipe>,
    home: Home,
    ports: Vec<u16>,
    version: String,
    /// In the order of their start; the last one is the server. None while it is stopped.
    processes: Vec<Guard>,
    /// Whether it has answered since it was started.
    ready: bool,
    /// How long the log was when these processes were started.
    log_start: usize,
}

impl Server {
    /// Starts a server in a folder, and returns when it answers. Gives up when `interrupted` says so.
    pub fn start(recipe: Box<dyn Recipe>, folder: &Folder, interrupted: &dyn Fn() -> bool) -> Result<Self> {
        let kind = recipe.kind();
        let home = Home::create(folder, kind.name())?;
        let attempt = || -> Result<Self> {
            recipe.prepare(&home)?;
            let mut server = Self {
                recipe,
                home,
                ports: Vec::new(),
                version: String::new(),
                processes: Vec::new(),
                ready: false,
                log_start: 0,
            };
            for _ in 0..PORT_ATTEMPTS {
                server.ports = free_ports(server.recipe.ports())?;
                server.spawn(interrupted)?;
                if server.is_ready(interrupted)? {
                    return Ok(server);
                }
            }
            bail!("no port stayed free in {PORT_ATTEMPTS} attempts")
        };
        attempt().with_context(|| format!("cannot start {kind}"))
    }

    /// Which kind it is.
    pub fn kind(&self) -> Kind {
        self.recipe.kind()
    }

    /// Where clients connect.
    pub fn url(&self) -> String {
        self.recipe.url(&self.ports)
    }

    /// The port that clients use.
    pub fn port(&self) -> u16 {
        self.ports.first().copied().unwrap_or_default()
    }

    /// The process id of its first process, the parent of all others. `None` while it is stopped.
    pub fn id(&self) -> Option<u32> {
        self.processes.last().map(Guard::id)
    }

    /// The process ids of all that was started for it, its helpers first.
    pub fn ids(&self) -> Vec<u32> {
        self.processes.iter().map(Guard::id).collect()
    }

    /// What it says its version is, such as `15.18`.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The folder with data and log.
    pub fn folder(&self) -> &Path {
        self.home.path()
    }

    /// Fails when the server ended by itself.
    pub fn check(&mut self) -> Result<()> {
        for process in &mut self.processes {
            if let Some(status) = process.exited()? {
                bail!("{} ended by itself ({status})\n{}", self.recipe.kind(), self.home.log_tail());
            }
        }
        Ok(())
    }

    /// Stops it, properly when it is ready, and at once when it is not: one that is still starting may not listen. Its data
    /// stays.
    pub fn stop(&mut self) -> Result<()> {
        self.end(if self.ready { self.recipe.stop() } else { self.recipe.crash() })
    }

    /// Ends it as a crash does. Its data stays.
    pub fn crash(&mut self) -> Result<()> {
        self.end(self.recipe.crash())
    }

    fn end(&mut self, signal: Signal) -> Result<()> {
        self.ready = false;
        if let Some(mut server) = self.processes.pop() {
            server.stop(signal)?;
        }
        // The helpers, last started first.
        while let Some(mut helper) = self.processes.pop() {
            helper.stop(Signal::SIGTERM)?;
        }
        Ok(())
    }

    /// Starts it again after it was stopped, on the same ports and data, and returns when it answers.
    pub fn resume(&mut self, interrupted: &dyn Fn() -> bool) -> Result<()> {
        let deadline = Instant::now() + READY_WITHIN;
        while Instant::now() < deadline {
            self.spawn(interrupted)?;
            if self.is_ready(interrupted)? {
                return Ok(());
            }
            // Somebody has the port for a moment.
            sleep(POLL);
        }
        bail!("the ports of {} are taken:\n{}", self.kind(), self.home.log_tail())
    }

    fn spawn(&mut self, interrupted: &dyn Fn() -> bool) -> Result<()> {
        self.stop()?;
        // Preparing takes a while, and a server that has hardly begun hears no signal.
        check(interrupted)?;
        self.log_start = self.home.log_text().len();
        let commands = self.recipe.commands(&self.home, &self.ports);
        let count = commands.len();
        for (index, command) in commands.into_iter().enumerate() {
            let stop = if index + 1 == count { self.recipe.stop() } else { Signal::SIGTERM };
            self.processes.push(self.home.spawn(command, stop)?);
        }
        Ok(())
    }

    /// Waits until the server answers; `false` when its port was taken.
    fn is_ready(&mut self, interrupted: &dyn Fn() -> bool) -> Result<bool> {
        let deadline = Instant::now() + READY_WITHIN;
        loop {
            check(interrupted)?;
            if let Err(ended) = self.check() {
                return if self.was_port_taken()? { Ok(false) } else { Err(ended) };
            }
            let Some(id) = self.id() else { bail!("nothing was started") };
            // A port can be open before the server takes work, and can even be another server's.
            match self.recipe.identify(&self.home, &self.ports, id) {
                Ok(version) => {
                    self.version = version;
                    self.ready = true;
                    return Ok(true);
                }
                Err(error) if Instant::now() > deadline => {
                    let seconds = READY_WITHIN.as_secs();
                    bail!("it is not ready after {seconds} s: {error:#}\n{}", self.home.log_tail());
                }
                Err(_) => sleep(POLL),
            }
        }
    }

    /// Why a server that ended while starting did so. Most say it, and then it may be free again; `epmd` does not.
    fn was_port_taken(&mut self) -> Result<bool> {
        self.stop()?;
        let log = self.home.log_text();
        let said = log.get(self.log_start..).unwrap_or_default().to_lowercase();
        Ok(PORT_TAKEN.iter().any(|words| said.contains(words)) || !are_free(&self.ports))
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
