//! Confirmation prompts before bulk changes.

use crate::{exit::Exit, problem::Problem};
use std::io::{self, IsTerminal};
use tokio_util::sync::CancellationToken;

/// Asks the user to confirm. `None` if a signal arrives before the reply.
pub(crate) async fn confirm(past: &str, stop: &CancellationToken) -> Result<Option<bool>, Problem> {
    if !io::stdin().is_terminal() {
        return Err(Problem::new(
            "confirmation required but stdin is not a terminal",
            "pass --yes to confirm, or --dry-run to count the messages",
        )
        .with_exit(Exit::Usage));
    }
    eprint!("Shall they be {past}? [y/N] ");
    // On another thread, so that signals are handled meanwhile.
    let prompt = tokio::task::spawn_blocking(|| {
        let mut reply = String::new();
        io::stdin().read_line(&mut reply).map(|_| reply)
    });
    let reply = stop.run_until_cancelled(prompt).await;
    Ok(reply.map(|reply| matches!(reply, Ok(Ok(reply)) if matches!(reply.trim(), "y" | "Y" | "yes"))))
}
