//! What every command that starts servers lets its caller choose.

use postrider_servers::Afterwards;

use crate::packages::Missing;

#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct Options {
    /// Fail when a server is missing instead of installing or fetching it
    #[arg(long)]
    no_install: bool,

    /// Keep the servers' folders, with data and log
    #[arg(long)]
    keep: bool,
}

impl Options {
    /// What to do about a missing server.
    pub(crate) fn missing(self) -> Missing {
        if self.no_install { Missing::Fail } else { Missing::Install }
    }

    /// What happens to a server's folder.
    pub(crate) fn afterwards(self) -> Afterwards {
        if self.keep { Afterwards::Keep } else { Afterwards::Remove }
    }
}
