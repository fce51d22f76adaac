//! Who shows the picture: a terminal that is drawn over, or plain lines.

use super::{snapshot::Snapshot, view};
use crate::canvas::Canvas;
use std::time::Duration;

/// How often the terminal is drawn.
pub(super) const DRAWN_EVERY: Duration = Duration::from_millis(150);
/// How often a line is written.
const TOLD_EVERY: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) enum Screen {
    Terminal(Canvas),
    Lines { told: Duration },
}

impl Screen {
    /// Draws on stdout if that is a terminal, unless it is wanted for data; else tells stderr.
    pub(super) fn open(is_wanted_for_data: bool) -> Self {
        let canvas = if is_wanted_for_data { None } else { Canvas::open() };
        canvas.map_or(Self::Lines { told: Duration::ZERO }, Self::Terminal)
    }

    pub(super) fn is_terminal(&self) -> bool {
        matches!(self, Self::Terminal(_))
    }

    pub(super) fn show(&mut self, snapshot: &Snapshot) {
        match self {
            Self::Terminal(canvas) => canvas.draw(|size| view::lines(snapshot, size.columns)),
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
