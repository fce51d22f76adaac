//! The output of the demo: a full-screen terminal, or plain lines.

use super::{snapshot::Snapshot, view};
use crate::alternate_screen::AlternateScreen;
use std::time::Duration;

/// The refresh interval of the terminal.
pub(super) const REFRESH_INTERVAL: Duration = Duration::from_millis(150);
/// The interval between two lines.
const LINE_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) enum Screen {
    Terminal(Box<AlternateScreen>),
    Lines { printed: Duration },
}

impl Screen {
    /// Draws on stdout when it is a terminal and not used for JSON; otherwise prints lines to stderr.
    pub(super) fn open(is_json: bool) -> Self {
        let screen = if is_json { None } else { AlternateScreen::open() };
        screen.map_or(Self::Lines { printed: Duration::ZERO }, |screen| Self::Terminal(Box::new(screen)))
    }

    pub(super) fn is_terminal(&self) -> bool {
        matches!(self, Self::Terminal(_))
    }

    pub(super) fn show(&mut self, snapshot: &Snapshot) {
        match self {
            Self::Terminal(screen) => screen.draw(|frame| view::draw(frame, snapshot)),
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
