//! Another process: the test program, started again to run one of its own tests as the body.

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use std::{
    io::Read,
    process::{Child, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

/// What the other process is to do. Without it, the body of the other process is a test that does nothing.
const TOLD: &str = "POSTRIDER_TEST_TOLD";

/// Another process. Dropped, it is killed.
#[derive(Debug)]
pub struct Process(Child);

impl Process {
    /// Runs the test `body` in another process and tells it something.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn start(body: &str, told: &str) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args([body, "--exact", "--nocapture", "--test-threads=1"]).env(TOLD, told);
        // Closed when this process dies, whatever it dies of.
        Self(command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap())
    }

    /// Sends it a signal.
    ///
    /// # Panics
    /// When it is gone.
    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.0.id().cast_signed()), signal).unwrap();
    }

    /// How it ended, if it did.
    ///
    /// # Panics
    /// When that cannot be asked.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.0.try_wait().unwrap()
    }

    /// Waits for its end; `None` when it takes longer.
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

    /// SIGKILL: nothing of it runs any more when this returns.
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

/// In the other process: what it was told. From here on it ends when its parent does.
pub fn told() -> Option<String> {
    let told = std::env::var(TOLD).ok()?;
    std::thread::spawn(|| {
        std::io::stdin().read_to_end(&mut Vec::new()).ok();
        std::process::exit(3);
    });
    Some(told)
}
