//! Who a server runs as.
//!
//! PostgreSQL refuses to run as root, so root hands it to another account. In both cases the server
//! is told to end when xtask dies without being able to stop it.

use std::io;
use std::os::unix::fs::chown;
use std::path::Path;
use std::process::Command;

use anyhow::{Result, bail};
use nix::unistd::{Gid, Uid, User, geteuid};

use crate::process;

/// PostgreSQL's immediate shutdown: certain within seconds, and unlike a kill it gives its shared
/// memory back.
const WHEN_ORPHANED: [&str; 2] = ["--pdeathsig", "QUIT"];

/// Who a server runs as.
#[derive(Debug, Clone)]
pub(crate) enum Account {
    /// The caller's own account.
    Own {
        /// Whether the system can end the server when xtask dies.
        guarded: bool,
    },
    /// An unprivileged account that root switches to.
    Other { name: String, uid: Uid, gid: Gid },
}

impl Account {
    /// The account for servers that the caller starts.
    pub(crate) fn choose() -> Result<Self> {
        let setpriv = process::succeeds(Command::new("setpriv").args(WHEN_ORPHANED).arg("true"));
        if !geteuid().is_root() {
            return Ok(Self::Own { guarded: setpriv });
        }
        if !setpriv {
            bail!("root needs util-linux's `setpriv` to run PostgreSQL as another user: install util-linux");
        }
        for name in ["postgres", "nobody"] {
            if let Some(User { name, uid, gid, .. }) = User::from_name(name)? {
                return Ok(Self::Other { name, uid, gid });
            }
        }
        bail!("PostgreSQL refuses to run as root, and there is no user `postgres` or `nobody` to run it as")
    }

    /// A command that runs `program` as this account.
    pub(crate) fn command(&self, program: &Path) -> Command {
        let mut command = match self {
            Self::Own { guarded: false } => return Command::new(program),
            Self::Own { guarded: true } | Self::Other { .. } => Command::new("setpriv"),
        };
        command.args(WHEN_ORPHANED);
        if let Self::Other { uid, gid, .. } = self {
            // By number: the group of `nobody` has another name on every system.
            command.arg(format!("--reuid={uid}")).arg(format!("--regid={gid}")).arg("--init-groups");
        }
        command.arg("--").arg(program);
        command
    }

    /// Gives a path to this account.
    pub(crate) fn own(&self, path: &Path) -> io::Result<()> {
        match self {
            Self::Own { .. } => Ok(()),
            Self::Other { uid, gid, .. } => chown(path, Some(uid.as_raw()), Some(gid.as_raw())),
        }
    }

    /// The name for messages.
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Own { .. } => "the current user",
            Self::Other { name, .. } => name,
        }
    }
}
