//! The progress of a run on stderr: one line that is updated on a terminal, and a line every ten seconds elsewhere.

use crate::{database::Database, goal::Goal};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::{
    io::{IsTerminal, stderr},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};
use tokio::{task::JoinHandle, time::sleep};

const POLL: Duration = Duration::from_millis(500);
/// The interval of lines elsewhere than on a terminal.
const LINES_EVERY: Duration = Duration::from_secs(10);

/// Counts that the progress line shows. Messages of this round are counted in the database.
#[derive(Debug)]
pub(crate) struct Progress {
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

#[derive(Debug)]
struct Shared {
    goal: Goal,
    began_at: Instant,
    /// Messages that an earlier start of the run has handled.
    messages_before: u64,
    kills: AtomicU64,
    /// Messages of the checked rounds.
    checked: AtomicU64,
    /// Messages of this round, as last seen.
    current: AtomicU64,
    phase: Mutex<String>,
}

impl Progress {
    pub(crate) fn start(database: Database, goal: Goal, kills: u64, messages: u64) -> Self {
        let shared = Arc::new(Shared {
            goal,
            began_at: Instant::now(),
            messages_before: messages,
            kills: kills.into(),
            checked: messages.into(),
            current: 0.into(),
            phase: Mutex::new("starting".into()),
        });
        let task = tokio::spawn(show(database, Arc::clone(&shared)));
        Self { shared, task }
    }

    /// Shows what is happening now.
    pub(crate) fn phase(&self, phase: impl Into<String>) {
        *self.shared.phase.lock().unwrap_or_else(PoisonError::into_inner) = phase.into();
    }

    pub(crate) fn add_kill(&self) {
        self.shared.kills.fetch_add(1, Relaxed);
    }

    /// The messages of this round are checked.
    pub(crate) fn end_round(&self, messages: u64) {
        self.shared.current.store(0, Relaxed);
        self.shared.checked.fetch_add(messages, Relaxed);
    }

    /// Messages of this round, as last seen.
    pub(crate) fn current(&self) -> u64 {
        self.shared.current.load(Relaxed)
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Shared {
    fn line(&self) -> String {
        let messages = self.checked.load(Relaxed) + self.current.load(Relaxed);
        let seconds = self.began_at.elapsed().as_secs_f64();
        let rate = (messages.saturating_sub(self.messages_before)) as f64 / seconds.max(1.0);
        let kills = self.kills.load(Relaxed);
        let phase = self.phase.lock().unwrap_or_else(PoisonError::into_inner);
        let of = |wanted: Option<u64>| wanted.map(|wanted| format!(" of {wanted}")).unwrap_or_default();
        format!(
            "{kills}{} kills, {messages}{} messages, {rate:.0} messages/s, {:.2} kills/s, 0 violations, {seconds:.0} s: {phase}",
            of(self.goal.kills),
            of(self.goal.messages),
            kills as f64 / seconds.max(1.0),
        )
    }
}

async fn show(database: Database, shared: Arc<Shared>) {
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    if let Ok(style) = ProgressStyle::with_template("{spinner} {msg}") {
        bar.set_style(style);
    }
    let mut last_line = Instant::now();
    loop {
        // The database may be down.
        if let Ok(staged) = database.staged().await {
            shared.current.store(u64::try_from(staged).unwrap_or_default(), Relaxed);
        }
        if stderr().is_terminal() {
            bar.set_message(shared.line());
            bar.tick();
        } else if last_line.elapsed() >= LINES_EVERY {
            last_line = Instant::now();
            eprintln!("soak: {}", shared.line());
        }
        sleep(POLL).await;
    }
}
