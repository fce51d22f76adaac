//! A child process that ends with its guard.
//!
//! It gets its own process group. A terminal sends Ctrl-C to its whole foreground group: a server in that group would
//! shut down under the tests that use it.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::process::cannot_run;
use crate::spawner;

const POLL: Duration = Duration::from_millis(10);
/// A process that ignores its signal for this long is killed.
const STOP_WITHIN: Duration = Duration::from_secs(20);

/// A child process. Dropping this value stops it.
#[derive(Debug)]
pub struct ProcessGuard {
    child: Child,
    stop: Signal,
}

impl ProcessGuard {
    /// Starts a process that the signal `stop` ends.
    pub fn spawn(mut command: Command, stop: Signal) -> Result<Self> {
        let failure = cannot_run(&command);
        command.process_group(0).stdin(Stdio::null());
        let child = spawner::spawn(command).context(failure)?;
        Ok(Self { child, stop })
    }

    /// The process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The exit status, if the process has ended.
    pub fn exited(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// Sends a signal that ends the process, and waits for its end.
    pub fn stop(&mut self, signal: Signal) -> Result<()> {
        // Not reaped yet, so the id still belongs to this process.
        if self.exited()?.is_some() {
            return Ok(());
        }
        kill(Pid::from_raw(self.child.id().cast_signed()), signal)?;
        let deadline = Instant::now() + STOP_WITHIN;
        while Instant::now() < deadline {
            if self.exited()?.is_some() {
                return Ok(());
            }
            sleep(POLL);
        }
        eprintln!("process {} ignored {signal} for {} s: killing it", self.id(), STOP_WITHIN.as_secs());
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for ProcessGuard {
    fn drop(&mut self) {
        if let Err(error) = self.stop(self.stop) {
            eprintln!("cannot stop process {}: {error:#}", self.id());
        }
    }
}
