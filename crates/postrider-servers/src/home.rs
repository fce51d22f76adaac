//! The folder of one server, owned by who runs it.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use nix::sys::signal::Signal;

use crate::account::Account;
use crate::folder::Folder;
use crate::guard::Guard;

const LOG_TAIL: usize = 30;

/// The folder of one server. The programs that are started in it write to one log.
#[derive(Debug)]
pub struct Home {
    path: PathBuf,
    tag: String,
    account: Account,
}

impl Home {
    /// Makes the folder `name` under a temporary one.
    pub fn create(folder: &Folder, name: &str) -> Result<Self> {
        let account = Account::choose()?;
        let path = folder.path().join(name);
        fs::create_dir(&path).with_context(|| format!("cannot create {}", path.display()))?;
        fs::set_permissions(&path, Permissions::from_mode(0o700))?;
        account.own(&path)?;
        let tag = folder.path().file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok(Self { path, tag, account })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A name that no other server on this machine has, of letters, digits and hyphens.
    pub fn tag(&self) -> &str {
        &self.tag
    }

    /// Makes a folder in it that the server can write to.
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

    /// Fails when the server's account cannot run a program.
    pub fn check(&self, program: &Path) -> Result<()> {
        if !self.account.can_run(program, "--version") {
            bail!(
                "{} cannot run {}: it must be there, and every folder above it open to that user (`chmod a+rx`)",
                self.account.name(),
                program.display()
            );
        }
        Ok(())
    }

    /// A command that runs as the server's account. When this process dies it gets the signal `orphaned`.
    pub fn command(&self, program: &Path, orphaned: Signal) -> Command {
        let mut command = self.account.command(program, orphaned);
        // Messages in English, and a working folder that the account can enter.
        command.env("LC_ALL", "C").current_dir(&self.path);
        command
    }

    /// Starts a program that `stop` ends.
    pub fn spawn(&self, mut command: Command, stop: Signal) -> Result<Guard> {
        let log = File::options().create(true).append(true).open(self.log())?;
        command.stdout(log.try_clone()?).stderr(log);
        Guard::spawn(command, stop)
    }

    /// What the programs have said.
    pub fn log_text(&self) -> String {
        fs::read(self.log()).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
    }

    /// The last lines of it, for whoever finds that the server does not work.
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
