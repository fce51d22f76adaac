//! Who shows the picture: a terminal that is drawn over, or plain lines.
//!
//! The terminal is drawn on its second screen, as `top` does: what was there comes back afterwards, and no line that a narrower
//! window breaks in two can be left behind. Each picture is one write, so that nothing flickers.

use super::{
    snapshot::Snapshot,
    view::{self, Paint, Size},
};
use std::{
    env,
    io::{self, IsTerminal, Write},
    time::Duration,
};

/// How often the terminal is drawn.
pub(super) const DRAWN_EVERY: Duration = Duration::from_millis(150);
/// How often a line is written.
const TOLD_EVERY: Duration = Duration::from_secs(1);

/// The second screen without a cursor and without breaking lines; and the way back.
const ENTER: &str = "\x1b[?1049h\x1b[?25l\x1b[?7l";
const LEAVE: &str = "\x1b[?7h\x1b[?25h\x1b[?1049l";

#[derive(Debug)]
pub(super) enum Screen {
    Terminal { paint: Paint },
    Lines { told: Duration },
}

impl Screen {
    /// Draws on stdout if that is a terminal, unless it is wanted for data; else tells stderr.
    pub(super) fn open(is_wanted_for_data: bool) -> Self {
        let is_dumb = env::var_os("TERM").is_some_and(|term| term == "dumb");
        if is_wanted_for_data || is_dumb || !io::stdout().is_terminal() {
            return Self::Lines { told: Duration::ZERO };
        }
        put(ENTER);
        Self::Terminal { paint: paint() }
    }

    pub(super) fn is_terminal(&self) -> bool {
        matches!(self, Self::Terminal { .. })
    }

    pub(super) fn show(&mut self, snapshot: &Snapshot) {
        match self {
            Self::Terminal { paint } => put(&frame(&view::draw(snapshot, size(), *paint))),
            Self::Lines { told } => {
                if snapshot.is_stopping {
                    eprintln!("stopping; Ctrl-C again ends it at once");
                } else if snapshot.elapsed >= *told + TOLD_EVERY {
                    *told = Duration::from_secs(snapshot.elapsed.as_secs());
                    eprintln!("{}", view::line(snapshot));
                }
            }
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        if self.is_terminal() {
            put(LEAVE);
        }
    }
}

/// Drawn over what is there, line by line, and shown at once where the terminal can do that.
fn frame(lines: &[String]) -> String {
    format!("\x1b[?2026h\x1b[H{}\x1b[K\x1b[J\x1b[?2026l", lines.join("\x1b[K\r\n"))
}

/// A terminal that is gone is told nothing.
fn put(text: &str) {
    let mut out = io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

fn paint() -> Paint {
    let no_colour = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    if no_colour { Paint::Plain } else { Paint::Colours }
}

fn size() -> Size {
    match terminal_size::terminal_size_of(io::stdout()) {
        Some((columns, rows)) => Size { columns: columns.0.into(), rows: rows.0.into() },
        None => Size { columns: 80, rows: 24 },
    }
}
