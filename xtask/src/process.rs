//! The child processes that xtask waits for.
//!
//! Each gets its own process group, as servers do. A terminal sends Ctrl-C to its whole foreground group: a test runner in that
//! group would receive every signal twice, once from the terminal and once from xtask. With separate groups the order is always
//! the same: xtask receives the signal, forwards it to the runner once, waits, then stops the servers.

use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result};
use nix::sys::signal::killpg;
use nix::unistd::Pid;
use postrider_servers::process::cannot_run;

use crate::signals::{Interrupted, Signals};
use crate::terminal::info;

const POLL: Duration = Duration::from_millis(20);

/// Runs a command to its end and returns its exit code. Forwards the signals that arrive.
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
            // Cargo does not forward signals to the tests it runs; the process group reaches all of them.
            if let Err(error) = killpg(pid(&child), signal) {
                info(&format!("cannot forward {signal}: {error}"));
            }
        }
        sleep(POLL);
    }
}

fn pid(child: &Child) -> Pid {
    Pid::from_raw(child.id().cast_signed())
}

fn exit_code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}
