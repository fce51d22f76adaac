//! A child process: a program, or the test program itself, started again to run one of its own tests.

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use std::{
    fs,
    io::Read,
    path::PathBuf,
    process::{Child, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

/// The variable with the argument of the child process. The test that is the body of the child is ignored, so that it does not count
/// as a test; without the variable it does nothing.
const ARGUMENT: &str = "POSTRIDER_TEST_ARGUMENT";

/// A child process. Dropping it kills the process.
#[derive(Debug)]
pub struct Process(Child);

impl Process {
    /// Runs the ignored test `body` in a child process with an argument.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn start(body: &str, argument: &str) -> Self {
        Self::spawn(Self::command(body, argument))
    }

    /// Runs the test `body` in a child process whose clock is wrong by this many seconds. Its monotonic clock is right.
    ///
    /// # Panics
    /// When it cannot be started, or `libfaketime` is missing.
    pub fn start_with_wrong_clock(body: &str, argument: &str, seconds: i64) -> Self {
        let mut command = Self::command(body, argument);
        command.env("LD_PRELOAD", libfaketime()).env("FAKETIME", format!("{seconds:+}"));
        command.env("FAKETIME_DONT_FAKE_MONOTONIC", "1").env("DONT_FAKE_MONOTONIC", "1");
        Self::spawn(command)
    }

    fn command(body: &str, argument: &str) -> Command {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args([body, "--exact", "--ignored", "--nocapture", "--test-threads=1"]);
        command.env(ARGUMENT, argument);
        command
    }

    /// Starts a program. Its standard input is closed when this process dies for any reason: see [`exit_with_parent`].
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn spawn(mut command: Command) -> Self {
        Self(command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap())
    }

    /// Sends a signal to the process.
    ///
    /// # Panics
    /// When the process is gone.
    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.0.id().cast_signed()), signal).unwrap();
    }

    /// The exit status, if the process has ended.
    ///
    /// # Panics
    /// When the status cannot be read.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.0.try_wait().unwrap()
    }

    /// Waits until the process ends; `None` after the time limit.
    pub async fn ends_within(&mut self, longest: Duration) -> Option<ExitStatus> {
        let deadline = Instant::now() + longest;
        loop {
            let ended = self.ended();
            if ended.is_some() || Instant::now() >= deadline {
                return ended;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// Kills the process with SIGKILL; it has ended when this returns.
    pub fn kill(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}

/// The library of Debian's package, in the folder of this machine's architecture.
fn libfaketime() -> PathBuf {
    let folders = fs::read_dir("/usr/lib").unwrap().map(|entry| entry.unwrap().path());
    let mut libraries = folders.map(|folder| folder.join("faketime/libfaketimeMT.so.1"));
    libraries
        .find(|library| library.exists())
        .expect("libfaketime is missing: install the package `faketime`")
}

/// In the child process: its argument, if it is one. From this call on, the process exits when its parent does.
pub fn argument() -> Option<String> {
    let argument = std::env::var(ARGUMENT).ok()?;
    exit_with_parent();
    Some(argument)
}

/// In the child process: from this call on, it exits when its parent does.
pub fn exit_with_parent() {
    std::thread::spawn(|| {
        std::io::stdin().read_to_end(&mut Vec::new()).ok();
        std::process::exit(3);
    });
}
