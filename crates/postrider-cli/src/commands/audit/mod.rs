//! `postrider audit`: what operators did, and the ledger of what became of follow-ups.

mod ls;
mod verify;

use crate::{exit::Exit, problem::Problem};
use tokio_util::sync::CancellationToken;

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Audit {
    /// List what operators did, newest first: who, what and why
    Ls(ls::Args),
    /// Follow the ledger event by event, and tell whether somebody has been at it
    Verify(verify::Args),
}

impl Audit {
    /// Runs it until its end, or until `stop` asks it to end.
    pub(crate) async fn run(self, stop: CancellationToken) -> Result<Exit, Problem> {
        match self {
            Self::Ls(args) => ls::run(args, stop).await,
            Self::Verify(args) => verify::run(args, stop).await,
        }
    }
}
