//! A bar on stderr for work that takes long: how far it is, how fast it goes and when it ends. Where nobody watches there is none.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

#[derive(Debug)]
pub(crate) struct Progress(ProgressBar);

impl Progress {
    /// Of so many in all.
    pub(crate) fn of(total: u64) -> Self {
        // Hides itself unless stderr is a terminal.
        let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr());
        let plain = "{bar:30} {human_pos} of {human_len}  {per_sec}  {eta} left";
        if let Ok(style) = ProgressStyle::with_template(plain) {
            bar.set_style(style.progress_chars("=> "));
        }
        Self(bar)
    }

    /// So many more are done with.
    pub(crate) fn advance(&self, by: u64) {
        self.0.inc(by);
    }
}

impl Drop for Progress {
    /// Leaves the line to whoever writes next.
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
