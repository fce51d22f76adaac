//! `postrider audit`: the actions of operators, and the ledger of follow-up outcomes.

mod ls;
mod verify;

use crate::{exit::Exit, problem::Problem};
use tokio_util::sync::CancellationToken;

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Audit {
    /// List operator actions, newest first: who, what and why
    Ls(ls::Args),
    /// Verify the hash chain of the follow-up ledger
    Verify(verify::Args),
}

impl Audit {
    /// Runs the command to its end, or until `stop` requests a stop.
    pub(crate) async fn run(self, stop: CancellationToken) -> Result<Exit, Problem> {
        match self {
            Self::Ls(args) => ls::run(args, stop).await,
            Self::Verify(args) => verify::run(args, stop).await,
        }
    }
}
