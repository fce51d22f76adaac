//! The folder of one server, owned by the account that runs it.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use nix::sys::signal::Signal;

use crate::account::Account;
use crate::process_guard::ProcessGuard;
use crate::temp_folder::TempFolder;

const LOG_TAIL: usize = 30;

/// The folder of one server. The programs that are started in it write to one log.
#[derive(Debug)]
pub struct ServerDir {
    path: PathBuf,
    tag: String,
    account: Account,
}

impl ServerDir {
    /// Creates the folder `name` in a temporary folder.
    pub fn create(folder: &TempFolder, name: &str) -> Result<Self> {
        let account = Account::choose()?;
        let path = folder.path().join(name);
        fs::create_dir(&path).with_context(|| format!("cannot create {}", path.display()))?;
        fs::set_permissions(&path, Permissions::from_mode(0o700))?;
        account.own(&path)?;
        let tag = folder.path().file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok(Self { path, tag, account })
    }

    /// The path of the folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A name that no other server on this machine has, of letters, digits and hyphens.
    pub fn tag(&self) -> &str {
        &self.tag
    }

    /// Creates a subfolder that the server can write to.
    pub fn folder(&self, name: &str) -> Result<PathBuf> {
        let path = self.path.join(name);
        fs::create_dir(&path)?;
        self.account.own(&path)?;
        Ok(path)
    }

    /// Writes a file that the server can read.
    pub fn file(&self, name: &str, text: &str) -> Result<PathBuf> {
        let path = self.path.join(name);
        fs::write(&path, text)?;
        self.account.own(&path)?;
        Ok(path)
    }

    /// Fails if the server's account cannot run a program.
    pub fn check(&self, program: &Path) -> Result<()> {
        if !self.account.can_run(program, "--version") {
            bail!(
                "{} cannot run {}: check that it exists and that this user can enter every folder above it (`chmod a+rx`)",
                self.account.name(),
                program.display()
            );
        }
        Ok(())
    }

    /// A command that runs as the server's account. The process gets the signal `orphaned` when this process dies.
    pub fn command(&self, program: &Path, orphaned: Signal) -> Command {
        let mut command = self.account.command(program, orphaned);
        // Messages in English, and a working folder that the account can enter.
        command.env("LC_ALL", "C").current_dir(&self.path);
        command
    }

    /// Starts a program that the signal `stop` ends. Its output goes to the log.
    pub fn spawn(&self, mut command: Command, stop: Signal) -> Result<ProcessGuard> {
        let log = File::options().create(true).append(true).open(self.log())?;
        command.stdout(log.try_clone()?).stderr(log);
        ProcessGuard::spawn(command, stop)
    }

    /// The text of the log.
    pub fn log_text(&self) -> String {
        fs::read(self.log()).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
    }

    /// The last lines of the log, for error messages.
    pub fn log_tail(&self) -> String {
        let text = self.log_text();
        let lines: Vec<_> = text.lines().collect();
        let tail = &lines[lines.len().saturating_sub(LOG_TAIL)..];
        format!("the end of its log:\n{}", tail.join("\n"))
    }

    fn log(&self) -> PathBuf {
        self.path.join("log")
    }
}
