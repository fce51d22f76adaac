//! A terminal that is drawn over.
//!
//! It is drawn on its second screen, as `top` does: what was there comes back afterwards, and no line that a narrower window breaks
//! in two can be left behind. Each picture is one write, so that nothing flickers.

use std::{
    env,
    fmt::Write as _,
    io::{self, IsTerminal, Write},
};

/// The second screen without a cursor and without breaking lines; and the way back.
const ENTER: &str = "\x1b[?1049h\x1b[?25l\x1b[?7l";
const LEAVE: &str = "\x1b[?7h\x1b[?25h\x1b[?1049l";

/// How much room there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Size {
    pub(crate) columns: usize,
    pub(crate) rows: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Paint {
    Plain,
    Colours,
}

/// How a piece of text looks, as the terminal calls it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Look {
    Plain,
    Bold,
    Faint,
    Green,
    Yellow,
    Red,
}

impl Look {
    fn code(self) -> Option<u8> {
        match self {
            Self::Plain => None,
            Self::Bold => Some(1),
            Self::Faint => Some(2),
            Self::Red => Some(31),
            Self::Green => Some(32),
            Self::Yellow => Some(33),
        }
    }
}

/// Pieces of text beside each other.
pub(crate) type Line = Vec<(Look, String)>;

/// Stdout, as long as it is drawn on.
#[derive(Debug)]
pub(crate) struct Canvas {
    paint: Paint,
}

impl Canvas {
    /// None when stdout is no terminal that can be drawn on.
    pub(crate) fn open() -> Option<Self> {
        let is_dumb = env::var_os("TERM").is_some_and(|term| term == "dumb");
        if is_dumb || !io::stdout().is_terminal() {
            return None;
        }
        put(ENTER);
        let no_colour = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Some(Self { paint: if no_colour { Paint::Plain } else { Paint::Colours } })
    }

    /// Draws over what is there.
    pub(crate) fn draw(&self, picture: impl FnOnce(Size) -> Vec<Line>) {
        let size = size();
        put(&frame(&render(&picture(size), size, self.paint)));
    }
}

impl Drop for Canvas {
    fn drop(&mut self) {
        put(LEAVE);
    }
}

/// The lines of a picture, none longer or more than there is room for.
pub(crate) fn render(lines: &[Line], size: Size, paint: Paint) -> Vec<String> {
    lines.iter().take(size.rows).map(|line| rendered(line, size.columns, paint)).collect()
}

/// Cuts a line to its room, and paints it.
fn rendered(line: &Line, columns: usize, paint: Paint) -> String {
    let mut left = columns;
    let mut text = String::new();
    for (look, piece) in line {
        // What came from elsewhere must not steer the terminal.
        let piece: String = piece.chars().filter(|c| !c.is_control()).take(left).collect();
        left -= piece.chars().count();
        match look.code().filter(|_| paint == Paint::Colours && !piece.is_empty()) {
            // Writing to a string never fails.
            Some(code) => drop(write!(text, "\x1b[{code}m{piece}\x1b[0m")),
            None => text.push_str(&piece),
        }
    }
    if paint == Paint::Plain { text.trim_end().to_owned() } else { text }
}

/// Line by line, and shown at once where the terminal can do that.
fn frame(lines: &[String]) -> String {
    format!("\x1b[?2026h\x1b[H{}\x1b[K\x1b[J\x1b[?2026l", lines.join("\x1b[K\r\n"))
}

/// A terminal that is gone is told nothing.
fn put(text: &str) {
    let mut out = io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

fn size() -> Size {
    match terminal_size::terminal_size_of(io::stdout()) {
        Some((columns, rows)) => Size { columns: columns.0.into(), rows: rows.0.into() },
        None => Size { columns: 80, rows: 24 },
    }
}
