//! The options of every command that starts servers.

use postrider_servers::Cleanup;

use crate::packages::OnMissing;

#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct Options {
    /// Fail if a server is missing, instead of installing or fetching it
    #[arg(long)]
    no_install: bool,

    /// Keep the servers' folders with their data and logs
    #[arg(long)]
    keep: bool,
}

impl Options {
    /// The action for a missing server.
    pub(crate) fn missing(self) -> OnMissing {
        if self.no_install { OnMissing::Fail } else { OnMissing::Install }
    }

    /// Whether a server's folder is removed or kept.
    pub(crate) fn cleanup(self) -> Cleanup {
        if self.keep { Cleanup::Keep } else { Cleanup::Remove }
    }
}
