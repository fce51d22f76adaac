//! The output of the demo: a full-screen terminal, or plain lines.

use super::{snapshot::Snapshot, view};
use crate::canvas::Canvas;
use std::time::Duration;

/// The refresh interval of the terminal.
pub(super) const REFRESH_INTERVAL: Duration = Duration::from_millis(150);
/// The interval between two lines.
const LINE_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) enum Screen {
    Terminal(Canvas),
    Lines { printed: Duration },
}

impl Screen {
    /// Draws on stdout when it is a terminal and not used for JSON; otherwise prints lines to stderr.
    pub(super) fn open(is_json: bool) -> Self {
        let canvas = if is_json { None } else { Canvas::open() };
        canvas.map_or(Self::Lines { printed: Duration::ZERO }, Self::Terminal)
    }

    pub(super) fn is_terminal(&self) -> bool {
        matches!(self, Self::Terminal(_))
    }

    pub(super) fn show(&mut self, snapshot: &Snapshot) {
        match self {
            Self::Terminal(canvas) => canvas.draw(|size| view::lines(snapshot, size.columns)),
            Self::Lines { printed } => {
                if snapshot.is_stopping {
                    eprintln!("stopping; Ctrl-C again exits at once");
                } else if snapshot.elapsed >= *printed + LINE_INTERVAL {
                    *printed = Duration::from_secs(snapshot.elapsed.as_secs());
                    eprintln!("{}", view::line(snapshot));
                }
            }
        }
    }
}
