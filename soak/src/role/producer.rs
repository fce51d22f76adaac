//! Stages messages as fast as they are delivered, until it is stopped. It may be killed at any point of a transaction.

use super::ProcessArgs;
use crate::{
    database::{Database, Ending},
    task::{Defect, Drafter},
};
use anyhow::Result;
use rand::{SeedableRng, rngs::StdRng};
use std::time::Duration;
use tokio::{
    signal::unix::{SignalKind, signal},
    time::{sleep, timeout},
};

/// Enough that no worker is idle, and few enough to be delivered within seconds at the end of a round.
const MAX_BACKLOG: i64 = 3_000;
/// Transactions between two looks at the backlog.
const TRANSACTIONS: usize = 5;
/// The pause of a producer that is too far ahead, or whose database is unavailable.
const PAUSE: Duration = Duration::from_millis(20);

pub(super) async fn run(database: &Database, args: &ProcessArgs) -> Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut drafter = Drafter::new(StdRng::seed_from_u64(args.seed));
    // Between transactions: none is open when the process ends.
    while timeout(Duration::ZERO, terminate.recv()).await.is_err() {
        match produce(database, args, &mut drafter).await {
            Ok(Progress::Produced) => {}
            Ok(Progress::Ahead) => sleep(PAUSE).await,
            Err(error) => {
                eprintln!("cannot stage: {error:#}");
                drafter.change_keys();
                sleep(PAUSE).await;
            }
        }
    }
    Ok(())
}

/// The result of one look at the backlog.
enum Progress {
    Produced,
    Ahead,
}

async fn produce(database: &Database, args: &ProcessArgs, drafter: &mut Drafter) -> Result<Progress> {
    if database.left().await? > MAX_BACKLOG {
        return Ok(Progress::Ahead);
    }
    for _ in 0..TRANSACTIONS {
        let batch = drafter.batch()?;
        let ending = if drafter.is_rolled_back() { Ending::Rollback } else { Ending::Commit };
        database.produce(&batch, ending, args.has(Defect::StageOutsideTransaction)).await?;
    }
    Ok(Progress::Produced)
}
