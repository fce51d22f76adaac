//! A progress bar on stderr for bulk work, with rate and estimated time. Hidden unless stderr is a terminal.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

#[derive(Debug)]
pub(crate) struct Progress(ProgressBar);

impl Progress {
    /// A bar for `total` items.
    pub(crate) fn of(total: u64) -> Self {
        let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr());
        let template = "{bar:30} {human_pos} of {human_len}  {per_sec}  {eta} left";
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style.progress_chars("=> "));
        }
        Self(bar)
    }

    /// Counts more items as done.
    pub(crate) fn advance(&self, by: u64) {
        self.0.inc(by);
    }
}

impl Drop for Progress {
    /// Clears the line.
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
