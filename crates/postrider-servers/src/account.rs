//! The account that a server runs as.
//!
//! Servers refuse to run as root, or should, so root runs them as another account. In both cases the system ends the server when
//! its parent dies without stopping it.

use std::io;
use std::os::unix::fs::chown;
use std::path::Path;
use std::process::Command;

use anyhow::{Result, bail};
use nix::sys::signal::Signal;
use nix::unistd::{Gid, Uid, User, geteuid};

use crate::process;

/// The account that a server runs as.
#[derive(Debug, Clone)]
pub enum Account {
    /// The caller's own account.
    Own {
        /// Whether the system can end the server when its parent dies.
        guarded: bool,
    },
    /// An unprivileged account that root switches to.
    Other {
        /// Its name.
        name: String,
        /// Its user id.
        uid: Uid,
        /// Its group id.
        gid: Gid,
    },
}

impl Account {
    /// The account for servers that the caller starts.
    pub fn choose() -> Result<Self> {
        let setpriv = process::succeeds(Command::new("setpriv").args(["--pdeathsig", "KILL", "true"]));
        if !geteuid().is_root() {
            return Ok(Self::Own { guarded: setpriv });
        }
        if !setpriv {
            bail!("cannot run servers as another user without `setpriv`: install util-linux");
        }
        for name in ["postgres", "nobody"] {
            if let Some(User { name, uid, gid, .. }) = User::from_name(name)? {
                return Ok(Self::Other { name, uid, gid });
            }
        }
        bail!(
            "servers do not run as root, and neither `postgres` nor `nobody` exists: create one of these users"
        )
    }

    /// A command that runs `program` as this account. The process gets the signal `orphaned` when its parent dies.
    pub fn command(&self, program: &Path, orphaned: Signal) -> Command {
        let mut command = match self {
            Self::Own { guarded: false } => return Command::new(program),
            Self::Own { guarded: true } | Self::Other { .. } => Command::new("setpriv"),
        };
        command.args(["--pdeathsig", orphaned.as_str().trim_start_matches("SIG")]);
        if let Self::Other { uid, gid, .. } = self {
            // By number: the group of `nobody` has another name on every system.
            command.arg(format!("--reuid={uid}")).arg(format!("--regid={gid}")).arg("--init-groups");
        }
        command.arg("--").arg(program);
        command
    }

    /// Whether this account can run a program. Runs it with one harmless argument to find out.
    pub fn can_run(&self, program: &Path, argument: &str) -> bool {
        process::succeeds(self.command(program, Signal::SIGKILL).arg(argument).current_dir("/"))
    }

    /// Makes this account the owner of a path.
    pub fn own(&self, path: &Path) -> io::Result<()> {
        match self {
            Self::Own { .. } => Ok(()),
            Self::Other { uid, gid, .. } => chown(path, Some(uid.as_raw()), Some(gid.as_raw())),
        }
    }

    /// The name, for messages.
    pub fn name(&self) -> &str {
        match self {
            Self::Own { .. } => "the current user",
            Self::Other { name, .. } => name,
        }
    }
}
