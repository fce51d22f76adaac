//! Asking before many things are changed.

use crate::{exit::Exit, problem::Problem};
use std::io::{self, IsTerminal};
use tokio_util::sync::CancellationToken;

/// Asks who sits there whether that shall be done. `None` when there is a signal instead of an answer.
pub(crate) async fn is_wanted(past: &str, stop: &CancellationToken) -> Result<Option<bool>, Problem> {
    if !io::stdin().is_terminal() {
        return Err(Problem::new(
            "nobody is there to be asked whether that is wanted",
            "give --yes to do it, or --dry-run to see how many there are",
        )
        .ending(Exit::Misused));
    }
    eprint!("Shall they be {past}? [y/N] ");
    // Elsewhere, so that signals are heard meanwhile.
    let asking = tokio::task::spawn_blocking(|| {
        let mut answer = String::new();
        io::stdin().read_line(&mut answer).map(|_| answer)
    });
    let answer = stop.run_until_cancelled(asking).await;
    Ok(answer.map(|answer| matches!(answer, Ok(Ok(answer)) if matches!(answer.trim(), "y" | "Y" | "yes"))))
}
