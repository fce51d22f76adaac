//! Servers that a test starts, to stop them: each in a folder of its own, on a free port of the loopback interface, gone with its
//! value. Servers refuse to run as root, so root hands them to another account.

use nix::{
    sys::signal::{Signal, kill},
    unistd::{Pid, User, geteuid},
};
use std::{
    ffi::OsStr,
    fs::{File, Permissions},
    net::{Ipv4Addr, TcpListener},
    os::unix::fs::{PermissionsExt, chown},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};
use tempfile::TempDir;

/// A server that ignores its signal for so long is killed.
const STOP_WITHIN: Duration = Duration::from_secs(20);

/// The folder of a server, owned by who runs it.
#[derive(Debug)]
pub(crate) struct Home {
    folder: TempDir,
    account: Option<User>,
}

/// A server at work. Dropped, it is stopped.
#[derive(Debug)]
pub(crate) struct Daemon {
    child: Child,
    stop: Signal,
}

impl Home {
    pub(crate) fn new(prefix: &str) -> Self {
        let folder = tempfile::Builder::new().prefix(prefix).tempdir().unwrap();
        let account = geteuid().is_root().then(|| {
            let find = |name| User::from_name(name).unwrap();
            find("postgres").or_else(|| find("nobody")).expect("there is no user `postgres` or `nobody`")
        });
        std::fs::set_permissions(folder.path(), Permissions::from_mode(0o700)).unwrap();
        if let Some(user) = &account {
            chown(folder.path(), Some(user.uid.as_raw()), Some(user.gid.as_raw())).unwrap();
        }
        Self { folder, account }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A command that runs as the account, and ends when this process does.
    pub(crate) fn command(&self, program: &Path) -> Command {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "QUIT"]);
        if let Some(user) = &self.account {
            // By number: the group of `nobody` has another name on every system.
            command.arg(format!("--reuid={}", user.uid)).arg(format!("--regid={}", user.gid));
            command.arg("--init-groups");
        }
        command
            .arg("--")
            .arg(program)
            .env("LC_ALL", "C")
            .current_dir(self.folder.path())
            .stdin(Stdio::null());
        command
    }

    /// Runs a command to its end.
    pub(crate) fn run<S: AsRef<OsStr>>(&self, program: &Path, arguments: &[S]) {
        let output = self.command(program).args(arguments).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{} failed: {said}", program.display());
    }

    /// Starts a server that `stop` ends.
    pub(crate) fn start(&self, mut command: Command, stop: Signal) -> Daemon {
        let log = File::options().create(true).append(true).open(self.path("log")).unwrap();
        let child = command.stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap();
        Daemon { child, stop }
    }

    /// What the server has said, for whoever finds that it does not work.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.path("log")).unwrap_or_default()
    }
}

impl Daemon {
    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Stops the server and waits for its end.
    pub(crate) fn stop(&mut self, signal: Signal) {
        if self.has_ended() {
            return;
        }
        // Not reaped yet, so the id is still this process and nobody else.
        kill(Pid::from_raw(self.child.id().cast_signed()), signal).unwrap();
        let deadline = Instant::now() + STOP_WITHIN;
        while Instant::now() < deadline {
            if self.has_ended() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.stop(self.stop);
    }
}

pub(crate) fn free_port() -> u16 {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port()
}
