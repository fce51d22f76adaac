//! A child process: the test program itself, started again to run one of its own tests.

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use std::{
    io::Read,
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
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args([body, "--exact", "--ignored", "--nocapture", "--test-threads=1"])
            .env(ARGUMENT, argument);
        // Closed when this process dies for any reason.
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

/// In the child process: its argument, if it is one. From this call on, the process exits when its parent does.
pub fn argument() -> Option<String> {
    let argument = std::env::var(ARGUMENT).ok()?;
    std::thread::spawn(|| {
        std::io::stdin().read_to_end(&mut Vec::new()).ok();
        std::process::exit(3);
    });
    Some(argument)
}
