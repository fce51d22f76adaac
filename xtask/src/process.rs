//! Child processes: the ones xtask waits for, and the ones it must not leave behind.
//!
//! Both kinds get a process group of their own. A terminal sends Ctrl-C to its whole foreground
//! group: a server in that group would shut down under the running tests, and a test runner would
//! hear every signal twice, once from the terminal and once from xtask. Apart, the order is always
//! the same: xtask hears the signal, passes it to the runner once, waits, then stops the servers.

use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;

use crate::signals::{Interrupted, Signals};
use crate::terminal::say;

const POLL: Duration = Duration::from_millis(20);
const STOP_WITHIN: Duration = Duration::from_secs(10);

/// Runs a command to its end and returns its exit code, passing on the signals that arrive.
pub(crate) fn run(command: &mut Command, signals: &Signals) -> Result<u8> {
    signals.check()?;
    // Outside the terminal's foreground group a read from it would stop the process.
    let mut child =
        command.process_group(0).stdin(Stdio::null()).spawn().with_context(|| cannot_run(command))?;
    let mut interrupted = None;
    loop {
        if let Some(status) = child.try_wait()? {
            return match interrupted {
                Some(signal) => Err(Interrupted(signal).into()),
                None => Ok(exit_code(status)),
            };
        }
        if let Some(signal) = signals.take() {
            interrupted = Some(signal);
            // Cargo does not pass signals to the tests it runs; the group reaches them all.
            if let Err(error) = killpg(pid(&child), signal) {
                say(&format!("cannot pass {signal} on: {error}"));
            }
        }
        sleep(POLL);
    }
}

/// Runs a command silently and returns what it printed; its whole output is in the error.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let output = command.stdin(Stdio::null()).output().with_context(|| cannot_run(command))?;
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        bail!("`{}` failed ({}):\n{}{}", display(command), output.status, stdout, stderr);
    }
    Ok(stdout)
}

/// Whether a command can be run here and succeeds.
pub(crate) fn succeeds(command: &mut Command) -> bool {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// A server process that ends with this value.
#[derive(Debug)]
pub(crate) struct Guard {
    child: Child,
    stop: Signal,
}

impl Guard {
    /// Starts a process that `stop` asks to end.
    pub(crate) fn spawn(command: &mut Command, stop: Signal) -> Result<Self> {
        let child =
            command.process_group(0).stdin(Stdio::null()).spawn().with_context(|| cannot_run(command))?;
        Ok(Self { child, stop })
    }

    /// The process id.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// How the process ended, when it did.
    pub(crate) fn exited(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    fn stop(&mut self) -> Result<()> {
        // Not reaped yet, so the id is still this process and nobody else.
        if self.exited()?.is_some() {
            return Ok(());
        }
        kill(pid(&self.child), self.stop)?;
        let deadline = Instant::now() + STOP_WITHIN;
        while Instant::now() < deadline {
            if self.exited()?.is_some() {
                return Ok(());
            }
            sleep(POLL);
        }
        say(&format!("process {} ignores {}: killing it", self.id(), self.stop));
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Err(error) = self.stop() {
            say(&format!("cannot stop process {}: {error:#}", self.id()));
        }
    }
}

fn pid(child: &Child) -> Pid {
    Pid::from_raw(child.id().cast_signed())
}

fn exit_code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}

fn cannot_run(command: &Command) -> String {
    format!("cannot run `{}`", display(command))
}

fn display(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}
