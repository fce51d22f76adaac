//! A full-screen terminal view.
//!
//! It draws on the alternate screen, as `top` does: the previous content returns afterwards. Keys are not read, and the terminal stays in
//! its normal mode, so that Ctrl-C sends a signal. Each frame is one synchronized update, so that nothing flickers.

use ratatui::{
    Frame, Terminal, TerminalOptions, Viewport,
    backend::CrosstermBackend,
    crossterm::{
        cursor::{Hide, Show},
        execute, queue,
        terminal::{
            BeginSynchronizedUpdate, EndSynchronizedUpdate, EnterAlternateScreen, LeaveAlternateScreen,
        },
    },
    layout::Rect,
    style::Style,
};
use std::{
    env,
    io::{self, BufWriter, IsTerminal, Stdout, Write},
};

/// The area of a terminal of unknown size.
const DEFAULT_AREA: Rect = Rect::new(0, 0, 80, 24);

/// Stdout, while the view owns it.
#[derive(Debug)]
pub(crate) struct AlternateScreen<W: Write = BufWriter<Stdout>> {
    terminal: Terminal<CrosstermBackend<W>>,
    area: Rect,
    has_styles: bool,
}

impl AlternateScreen {
    /// None if stdout is not a terminal that supports full-screen output.
    pub(crate) fn open() -> Option<Self> {
        let is_dumb = env::var_os("TERM").is_some_and(|term| term == "dumb");
        if is_dumb || !io::stdout().is_terminal() {
            return None;
        }
        let has_styles = env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        Self::enter(BufWriter::new(io::stdout()), terminal_area(), has_styles).ok()
    }

    /// Draws a frame over the previous one. Errors are ignored: the terminal may be gone.
    pub(crate) fn draw(&mut self, render: impl FnOnce(&mut Frame<'_>)) {
        let _ = self.draw_in(terminal_area(), render);
    }
}

impl<W: Write> AlternateScreen<W> {
    fn enter(writer: W, area: Rect, has_styles: bool) -> io::Result<Self> {
        // A viewport of the terminal's size: a full-screen viewport has the size of the controlling terminal, which need not be stdout.
        let options = TerminalOptions { viewport: Viewport::Fixed(area) };
        let terminal = Terminal::with_options(CrosstermBackend::new(writer), options)?;
        let mut screen = Self { terminal, area, has_styles };
        execute!(screen.terminal.backend_mut(), EnterAlternateScreen, Hide)?;
        Ok(screen)
    }

    fn draw_in(&mut self, area: Rect, render: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        queue!(self.terminal.backend_mut(), BeginSynchronizedUpdate)?;
        if area != self.area {
            self.area = area;
            self.terminal.resize(area)?;
        }
        let mut frame = self.terminal.get_frame();
        render(&mut frame);
        if !self.has_styles {
            frame.buffer_mut().set_style(area, Style::reset());
        }
        let drawn = self.terminal.flush();
        // Also after an error: the next frame starts from an empty buffer.
        self.terminal.swap_buffers();
        drawn.and_then(|()| execute!(self.terminal.backend_mut(), EndSynchronizedUpdate))
    }
}

impl<W: Write> Drop for AlternateScreen<W> {
    /// Restores the terminal, also while a panic unwinds.
    fn drop(&mut self) {
        let _ = execute!(self.terminal.backend_mut(), EndSynchronizedUpdate, Show, LeaveAlternateScreen);
    }
}

fn terminal_area() -> Rect {
    let size = terminal_size::terminal_size_of(io::stdout());
    size.map_or(DEFAULT_AREA, |(columns, rows)| Rect::new(0, 0, columns.0, rows.0))
}

/// The text of a frame on a terminal of this size, without trailing spaces.
#[cfg(test)]
pub(crate) fn drawn_text(columns: u16, rows: u16, render: impl FnOnce(&mut Frame<'_>)) -> String {
    let mut terminal = Terminal::new(ratatui::backend::TestBackend::new(columns, rows)).unwrap();
    terminal.draw(render).unwrap();
    // The backend cannot print lines without columns.
    let quoted = if columns == 0 { String::new() } else { terminal.backend().to_string() };
    let lines = quoted.lines().filter_map(|line| line.strip_prefix('"')?.strip_suffix('"'));
    lines.map(str::trim_end).collect::<Vec<_>>().join("\n").trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui::style::Stylize;
    use std::{
        panic::{self, AssertUnwindSafe},
        sync::{Arc, Mutex},
    };

    const AREA: Rect = Rect::new(0, 0, 20, 3);

    /// A terminal that keeps the bytes written to it.
    #[derive(Clone, Default)]
    struct Output(Arc<Mutex<Vec<u8>>>);

    impl Output {
        fn text(&self) -> String {
            String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
        }

        /// The screen as a terminal shows it.
        fn screen(&self, area: Rect) -> String {
            let [rows, columns] = [area.height, area.width].map(|length| length.try_into().unwrap());
            let mut parser = vt100::Parser::new(rows, columns, 0);
            parser.process(&self.0.lock().unwrap());
            let text = parser.screen().contents();
            text.lines().map(str::trim_end).collect::<Vec<_>>().join("\n").trim_end().to_owned()
        }
    }

    impl Write for Output {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn show(text: &str) -> impl FnOnce(&mut Frame<'_>) {
        |frame| frame.render_widget(text.bold().red(), frame.area())
    }

    #[test]
    fn panic_while_drawing_restores_the_terminal() {
        let output = Output::default();
        let mut screen = AlternateScreen::enter(output.clone(), AREA, true).unwrap();
        let caught = panic::catch_unwind(AssertUnwindSafe(move || {
            let _ = screen.draw_in(AREA, |_| panic!("no view"));
        }));
        assert!(caught.is_err());
        let text = output.text();
        assert!(text.starts_with("\x1b[?1049h\x1b[?25l"), "{text:?}");
        assert!(text.ends_with("\x1b[?2026l\x1b[?25h\x1b[?1049l"), "{text:?}");
    }

    #[test]
    fn frame_without_styles_has_same_text() {
        let screens = [true, false].map(|has_styles| {
            let output = Output::default();
            let mut screen = AlternateScreen::enter(output.clone(), AREA, has_styles).unwrap();
            screen.draw_in(AREA, show("no style")).unwrap();
            assert_eq!(output.text().contains("\x1b[1m"), has_styles, "{:?}", output.text());
            output.screen(AREA)
        });
        assert_eq!(screens, ["no style", "no style"]);
    }

    #[test]
    fn control_characters_are_not_written() {
        let output = Output::default();
        let mut screen = AlternateScreen::enter(output.clone(), AREA, true).unwrap();
        screen.draw_in(AREA, show("a\x1b[2J\x07\u{9b}2Jb\r\n\x08c")).unwrap();
        assert_eq!(output.screen(AREA), "a[2J2Jbc");
        for control in ["\x1b[2J", "\x07", "\u{9b}", "\r", "\n", "\x08"] {
            assert!(!output.text().contains(control), "{control:?} in {:?}", output.text());
        }
    }

    #[test]
    fn resize_clears_the_previous_frame() {
        let narrow = Rect { width: 8, ..AREA };
        for (before, after) in [(AREA, narrow), (narrow, AREA)] {
            let output = Output::default();
            let mut screen = AlternateScreen::enter(output.clone(), before, true).unwrap();
            screen.draw_in(before, show("before: a long line")).unwrap();
            screen.draw_in(after, show("after")).unwrap();
            assert_eq!(output.screen(AREA), "after");
        }
    }

    #[test]
    fn wide_characters_occupy_two_columns() {
        let output = Output::default();
        let mut screen = AlternateScreen::enter(output.clone(), AREA, true).unwrap();
        screen.draw_in(AREA, show("注文注文注文注文注文注文")).unwrap();
        assert_eq!(output.screen(AREA), "注文注文注文注文注文");
    }
}
