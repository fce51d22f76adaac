//! Renders a snapshot as text; `screen.rs` prints it.

use super::{snapshot::Snapshot, stats::percentiles};
use crate::{
    canvas::{Line, Look},
    format,
};

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

/// The lines of the screen, for this many columns.
pub(super) fn lines(snapshot: &Snapshot, columns: usize) -> Vec<Line> {
    let state = if snapshot.is_stopping { "stopping; Ctrl-C again exits at once" } else { "Ctrl-C to stop" };
    let mut lines = vec![
        vec![
            (Look::Bold, "postrider dev".to_owned()),
            (Look::Plain, format!("  {}", snapshot.database)),
            (Look::Faint, format!("  {state}")),
        ],
        time_line(snapshot, columns),
        Line::new(),
        row("orders", Look::Plain, format!("{}", snapshot.committed), {
            format!("committed, each with its event; {} more rolled back", snapshot.rolled_back)
        }),
        Line::new(),
        row("pending", Look::Plain, format::tally(snapshot.pending), "due, not claimed yet"),
        row("leased", Look::Plain, format::tally(snapshot.leased), "in flight"),
        row("scheduled", Look::Yellow, format::tally(snapshot.scheduled), "timers and retries"),
        row("done", Look::Green, snapshot.done.to_string(), "handled"),
        row("dead", Look::Red, snapshot.dead.to_string(), format::list(snapshot.reasons.iter().copied())),
        Line::new(),
        row("throughput", Look::Bold, format!("{:.0}/s", snapshot.per_second), {
            format!("{:.0}/s on average", snapshot.per_second_on_average)
        }),
        row("retried", Look::Plain, snapshot.retried.to_string(), "failed attempts that were retried"),
        vec![
            (Look::Plain, format!("  {:<10}  ", "latency")),
            (Look::Bold, percentiles(snapshot.latency)),
            (Look::Faint, "  from due to handled".to_owned()),
        ],
    ];
    if !snapshot.notes.is_empty() {
        lines.push(Line::new());
        lines.extend(snapshot.notes.iter().map(|note| vec![(Look::Faint, note.clone())]));
    }
    lines
}

fn row(name: &str, look: Look, value: impl Into<String>, remark: impl Into<String>) -> Line {
    vec![
        (Look::Plain, format!("  {name:<10}")),
        (look, format!("{:>8}", value.into())),
        (Look::Faint, format!("  {}", remark.into())),
    ]
}

/// The elapsed time, with a progress bar when the duration is known.
fn time_line(snapshot: &Snapshot, columns: usize) -> Line {
    let elapsed = snapshot.elapsed.as_secs_f64();
    let Some(duration) = snapshot.duration else {
        return vec![(Look::Plain, format!("{elapsed:.1} s"))];
    };
    let words = format!(" {elapsed:.1} s of {:.1} s", duration.as_secs_f64());
    let width = columns.saturating_sub(words.chars().count()).min(60);
    let share = (elapsed / duration.as_secs_f64()).clamp(0.0, 1.0);
    let full = (share * width as f64).round() as usize;
    vec![
        (Look::Green, "█".repeat(full)),
        (Look::Faint, "░".repeat(width.saturating_sub(full))),
        (Look::Plain, words),
    ]
}

#[cfg(test)]
mod tests {
    use super::{super::stats::Percentiles, *};
    use crate::canvas::{Paint, Size, render};
    use postrider::{Reason, inspect::CappedCount};
    use std::time::Duration;

    const WIDE: Size = Size { columns: 100, rows: 40 };

    fn draw(snapshot: &Snapshot, size: Size, paint: Paint) -> Vec<String> {
        render(&lines(snapshot, size.columns), size, paint)
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
        insta::assert_snapshot!(draw(&snapshot(), WIDE, Paint::Plain).join("\n"));
    }

    #[test]
    fn snapshot_without_duration_has_no_bar_and_without_events_no_latency() {
        let snapshot =
            Snapshot { duration: None, latency: None, is_stopping: true, notes: Vec::new(), ..snapshot() };
        insta::assert_snapshot!(draw(&snapshot, WIDE, Paint::Plain).join("\n"));
    }

    #[test]
    fn snapshot_as_line() {
        insta::assert_snapshot!(line(&snapshot()));
    }

    #[test]
    fn coloured_screen_has_same_text_as_plain_screen() {
        let coloured = draw(&snapshot(), WIDE, Paint::Colours).join("\n");
        assert!(coloured.contains("\x1b[31m       9\x1b[0m"), "{coloured:?}");
        let mut plain = coloured;
        for code in ["[0m", "[1m", "[2m", "[31m", "[32m", "[33m"] {
            plain = plain.replace(&format!("\x1b{code}"), "");
        }
        let trimmed: Vec<_> = plain.lines().map(str::trim_end).collect();
        assert_eq!(trimmed, draw(&snapshot(), WIDE, Paint::Plain));
    }

    #[test]
    fn screen_never_exceeds_terminal_size() {
        for columns in 0..120 {
            for rows in [0, 1, 5, 50] {
                let lines = draw(&snapshot(), Size { columns, rows }, Paint::Plain);
                assert!(lines.len() <= rows);
                assert!(lines.iter().all(|line| line.chars().count() <= columns), "{columns}: {lines:#?}");
            }
        }
    }
}
