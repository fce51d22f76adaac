//! A full-screen terminal view.
//!
//! It draws on the alternate screen, as `top` does: the previous content returns afterwards, and a line that a narrower window wraps
//! leaves nothing behind. Each frame is one write, so that nothing flickers.

use std::{
    env,
    fmt::Write as _,
    io::{self, IsTerminal, Write},
};

/// Enters the alternate screen, without cursor and line wrapping; and leaves it.
const ENTER: &str = "\x1b[?1049h\x1b[?25l\x1b[?7l";
const LEAVE: &str = "\x1b[?7h\x1b[?25h\x1b[?1049l";

/// The size of the terminal.
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

/// The style of a piece of text.
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
    /// The SGR code.
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

/// A line of styled pieces of text.
pub(crate) type Line = Vec<(Look, String)>;

/// Stdout, while the view owns it.
#[derive(Debug)]
pub(crate) struct Canvas {
    paint: Paint,
}

impl Canvas {
    /// None if stdout is not a terminal that supports full-screen output.
    pub(crate) fn open() -> Option<Self> {
        let is_dumb = env::var_os("TERM").is_some_and(|term| term == "dumb");
        if is_dumb || !io::stdout().is_terminal() {
            return None;
        }
        write_out(ENTER);
        let no_colour = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Some(Self { paint: if no_colour { Paint::Plain } else { Paint::Colours } })
    }

    /// Draws a frame over the previous one.
    pub(crate) fn draw(&self, picture: impl FnOnce(Size) -> Vec<Line>) {
        let size = size();
        write_out(&frame(&render(&picture(size), size, self.paint)));
    }
}

impl Drop for Canvas {
    fn drop(&mut self) {
        write_out(LEAVE);
    }
}

/// Renders lines, cut to the size of the terminal.
pub(crate) fn render(lines: &[Line], size: Size, paint: Paint) -> Vec<String> {
    lines.iter().take(size.rows).map(|line| render_line(line, size.columns, paint)).collect()
}

/// Renders one line, cut to the number of columns.
fn render_line(line: &Line, columns: usize, paint: Paint) -> String {
    let mut left = columns;
    let mut text = String::new();
    for (look, piece) in line {
        // Text from messages must not contain control sequences.
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

/// One frame, as a synchronized update if the terminal supports it.
fn frame(lines: &[String]) -> String {
    format!("\x1b[?2026h\x1b[H{}\x1b[K\x1b[J\x1b[?2026l", lines.join("\x1b[K\r\n"))
}

/// Writes to stdout. Errors are ignored: the terminal may be gone.
fn write_out(text: &str) {
    let mut out = io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

fn size() -> Size {
    match terminal_size::terminal_size_of(io::stdout()) {
        Some((columns, rows)) => Size { columns: columns.0.into(), rows: rows.0.into() },
        None => Size { columns: 80, rows: 24 },
    }
}
