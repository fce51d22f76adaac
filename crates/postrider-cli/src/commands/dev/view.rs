//! Renders a snapshot, as a line or on a screen; `screen.rs` prints it.

use super::{snapshot::Snapshot, stats::percentiles};
use crate::format;
use ratatui::{
    Frame,
    style::{Style, Stylize},
    text::{Line, Span, Text},
};
use std::fmt::Display;

/// The snapshot in one line.
pub(super) fn line(snapshot: &Snapshot) -> String {
    format!(
        "{:>4.0} s  committed {}  done {}  dead {}  pending {}  leased {}  scheduled {}  retried {}  {:.0}/s  {}",
        snapshot.elapsed.as_secs_f64(),
        snapshot.committed,
        snapshot.done,
        snapshot.dead,
        format::tally(snapshot.pending),
        format::tally(snapshot.leased),
        format::tally(snapshot.scheduled),
        snapshot.retried,
        snapshot.per_second,
        percentiles(snapshot.latency),
    )
}

/// Draws the snapshot on the whole screen.
pub(super) fn draw(frame: &mut Frame<'_>, snapshot: &Snapshot) {
    let area = frame.area();
    frame.render_widget(Text::from(lines(snapshot, area.width.into())), area);
}

/// The lines of the screen, for this many columns.
fn lines(snapshot: &Snapshot, columns: usize) -> Vec<Line<'_>> {
    let state = if snapshot.is_stopping { "stopping; Ctrl-C again exits at once" } else { "Ctrl-C to stop" };
    let mut lines = vec![
        Line::from_iter([
            "postrider dev".bold(),
            Span::raw(format!("  {}", snapshot.database)),
            format!("  {state}").dim(),
        ]),
        time_line(snapshot, columns),
        Line::default(),
        row("orders", Style::new(), snapshot.committed.to_string(), {
            format!("committed, each with its event; {} more rolled back", snapshot.rolled_back)
        }),
        Line::default(),
        row("pending", Style::new(), format::tally(snapshot.pending), "due, not claimed yet"),
        row("leased", Style::new(), format::tally(snapshot.leased), "in flight"),
        row("scheduled", Style::new().yellow(), format::tally(snapshot.scheduled), "timers and retries"),
        row("done", Style::new().green(), snapshot.done.to_string(), "handled"),
        row("dead", Style::new().red(), snapshot.dead.to_string(), {
            format::list(snapshot.reasons.iter().copied())
        }),
        Line::default(),
        row("throughput", Style::new().bold(), format!("{:.0}/s", snapshot.per_second), {
            format!("{:.0}/s on average", snapshot.per_second_on_average)
        }),
        row("retried", Style::new(), snapshot.retried.to_string(), "failed attempts that were retried"),
        Line::from_iter([
            Span::raw(format!("  {:<10}  ", "latency")),
            percentiles(snapshot.latency).bold(),
            "  from due to handled".dim(),
        ]),
    ];
    if !snapshot.notes.is_empty() {
        lines.push(Line::default());
        lines.extend(snapshot.notes.iter().map(|note| Line::from(note.as_str().dim())));
    }
    lines
}

fn row(name: &str, style: Style, value: impl Display, remark: impl Display) -> Line<'static> {
    Line::from_iter([
        Span::raw(format!("  {name:<10}")),
        Span::styled(format!("{value:>8}"), style),
        format!("  {remark}").dim(),
    ])
}

/// The elapsed time, with a progress bar when the duration is known.
fn time_line(snapshot: &Snapshot, columns: usize) -> Line<'static> {
    let elapsed = snapshot.elapsed.as_secs_f64();
    let Some(duration) = snapshot.duration else {
        return Line::raw(format!("{elapsed:.1} s"));
    };
    let words = Span::raw(format!(" {elapsed:.1} s of {:.1} s", duration.as_secs_f64()));
    let width = columns.saturating_sub(words.width()).min(60);
    let share = (elapsed / duration.as_secs_f64()).clamp(0.0, 1.0);
    let full = (share * width as f64).round() as usize;
    Line::from_iter(["█".repeat(full).green(), "░".repeat(width.saturating_sub(full)).dim(), words])
}

#[cfg(test)]
mod tests {
    use super::{super::stats::Percentiles, *};
    use crate::alternate_screen::drawn_text;
    use postrider::{Reason, inspect::CappedCount};
    use ratatui::{Terminal, backend::TestBackend, buffer::Cell, style::Color};
    use std::time::Duration;

    fn draw_wide(snapshot: &Snapshot) -> String {
        drawn_text(100, 40, |frame| draw(frame, snapshot))
    }

    fn snapshot() -> Snapshot {
        let tally = |at_least| CappedCount { at_least, capped: false };
        Snapshot {
            database: "SQLite in a temporary file".to_owned(),
            elapsed: Duration::from_millis(3_400),
            duration: Some(Duration::from_secs(10)),
            is_stopping: false,
            committed: 652,
            rolled_back: 28,
            pending: tally(3),
            leased: CappedCount { at_least: 10_000, capped: true },
            scheduled: tally(42),
            done: 588,
            dead: 9,
            reasons: vec![(Reason::RetriesExhausted, 2), (Reason::Rejected, 4), (Reason::Undecodable, 3)],
            retried: 31,
            per_second: 198.4,
            per_second_on_average: 172.9,
            latency: Some(Percentiles {
                p50: Duration::from_micros(6_120),
                p95: Duration::from_micros(38_400),
                p99: Duration::from_micros(131_000),
            }),
            notes: vec!["WARN store unavailable; \x1b[2Jretrying".to_owned()],
        }
    }

    #[test]
    fn snapshot_as_screen() {
        insta::assert_snapshot!(draw_wide(&snapshot()));
    }

    #[test]
    fn snapshot_without_duration_has_no_bar_and_without_events_no_latency() {
        let snapshot =
            Snapshot { duration: None, latency: None, is_stopping: true, notes: Vec::new(), ..snapshot() };
        insta::assert_snapshot!(draw_wide(&snapshot));
    }

    #[test]
    fn snapshot_as_line() {
        insta::assert_snapshot!(line(&snapshot()));
    }

    #[test]
    fn dead_letters_are_red_on_the_screen() {
        let mut terminal = Terminal::new(TestBackend::new(100, 40)).unwrap();
        terminal.draw(|frame| draw(frame, &snapshot())).unwrap();
        let buffer = terminal.backend().buffer();
        let red = buffer.content().iter().filter(|cell| cell.fg == Color::Red).map(Cell::symbol);
        assert_eq!(red.collect::<String>(), "       9");
    }

    #[test]
    fn screen_is_cut_to_any_terminal_size() {
        for columns in 0..120 {
            for rows in [0, 1, 5, 50] {
                let text = drawn_text(columns, rows, |frame| draw(frame, &snapshot()));
                assert!(text.lines().count() <= rows.into());
            }
        }
    }
}
