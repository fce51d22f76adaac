//! `postrider top`: live statistics of the queues.

use super::status::{self, Count, Queue};
use crate::{
    alternate_screen::AlternateScreen, duration, exit::Exit, format, open_database::OpenDatabase, output,
    problem::Problem, shared::Target, table::Table,
};
use postrider::QueueName;
use ratatui::{
    Frame,
    layout::{Constraint, Layout},
    style::{Style, Stylize},
    text::{Line, Span},
    widgets::{self, Row},
};
use serde::Serialize;
use std::{array, collections::BTreeMap, time::Duration};
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

const EXAMPLES: &str = "Examples:
  postrider top --db shop.db                      until Ctrl-C
  postrider top --db shop.db --jsonl --every 10s  one JSON object per sample
  postrider top --db shop.db --count 1            one sample, as text

The change per second follows a count: +20/s means that the backlog grows. A
count such as 10000+ is capped. When stdout is not a terminal, each sample is
written below the last.";

const HEADINGS: [&str; 7] = ["QUEUE", "PENDING", "LEASED", "SCHEDULED", "DEAD", "BLOCKED", "LAG"];
/// The widths of the columns on a screen that is wide enough, so that they do not move with every sample.
const MIN_WIDTHS: [usize; 7] = [16, 14, 6, 9, 12, 7, 3];
/// The gap between two columns.
const GAP: u16 = 2;
const NO_QUEUES: &str = "no queues yet";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    target: Target,

    /// Interval between two samples
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = duration::parse)]
    every: Duration,

    /// Exit after N samples
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,

    /// Print one JSON object per sample to stdout, and nothing else
    #[arg(long)]
    jsonl: bool,
}

/// A sample as JSON. Its keys are stable.
#[derive(Debug, Serialize)]
struct Sample {
    queues: Vec<Trend>,
}

#[derive(Debug, Serialize)]
struct Trend {
    #[serde(flatten)]
    queue: Queue,
    /// The change per second; none in the first sample, and when a count is capped.
    pending_per_second: Option<f64>,
    dead_per_second: Option<f64>,
}

/// The previous sample, to compute changes from.
#[derive(Debug, Default)]
struct PreviousSample {
    at: Option<Instant>,
    queues: BTreeMap<QueueName, (Count, Count)>,
}

pub(crate) async fn run(args: Args, stop: CancellationToken) -> Result<Exit, Problem> {
    // After a second signal, or an error, the terminal must be restored: the screen is dropped before anything is printed.
    args.target.look(&stop, async |opened| watch(opened, &args).await).await
}

async fn watch(opened: &OpenDatabase, args: &Args) -> Result<Exit, Problem> {
    let inspect = opened.backend();
    let mut screen = if args.jsonl { None } else { AlternateScreen::open() };
    let mut previous = PreviousSample::default();
    let mut clock = interval(args.every);
    clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut samples = 0;
    loop {
        clock.tick().await;
        let queues = status::queues(&*inspect, None).await.map_err(|error| opened.problem(&error))?;
        let sample = previous.compare(queues, Instant::now());
        let database = opened.database().to_string();
        match &mut screen {
            Some(screen) => screen.draw(|frame| draw(frame, &sample, &database)),
            None if args.jsonl => output::json(&sample)?,
            None => {
                let gap = if samples > 0 { "\n" } else { "" };
                output::text(&format!("{gap}{}", text(&sample, &database)))?;
            }
        }
        samples += 1;
        if args.count.is_some_and(|count| samples >= count) {
            return Ok(Exit::Success);
        }
    }
}

impl PreviousSample {
    fn compare(&mut self, queues: Vec<Queue>, now: Instant) -> Sample {
        let passed = self.at.replace(now).map(|at| now.saturating_duration_since(at).as_secs_f64());
        let change = |before: Count, after: Count| match passed {
            Some(passed) if passed > 0.0 && !before.capped && !after.capped => {
                Some((after.count as f64 - before.count as f64) / passed)
            }
            _ => None,
        };
        let before = std::mem::take(&mut self.queues);
        let trends = queues.into_iter().map(|queue| {
            let none = Count { count: 0, capped: false };
            let (pending, dead) = before.get(&queue.queue).copied().unwrap_or((none, none));
            self.queues.insert(queue.queue.clone(), (queue.pending, queue.dead));
            Trend {
                pending_per_second: change(pending, queue.pending),
                dead_per_second: change(dead, queue.dead),
                queue,
            }
        });
        Sample { queues: trends.collect() }
    }
}

fn title(database: &str) -> Line<'_> {
    Line::from_iter(["postrider top".bold(), Span::raw("  "), Span::raw(database), "  Ctrl-C to quit".dim()])
}

/// The sample as text.
fn text(sample: &Sample, database: &str) -> String {
    let title = title(database).to_string().replace(char::is_control, "");
    if sample.queues.is_empty() {
        return format!("{title}\n\n{NO_QUEUES}");
    }
    let mut table = Table::new(HEADINGS);
    sample.queues.iter().for_each(|trend| table.push(cells(trend).map(|cell| cell.content.into_owned())));
    format!("{title}\n\n{table}")
}

/// Draws the sample on the whole screen.
fn draw(frame: &mut Frame<'_>, sample: &Sample, database: &str) {
    let heights = [Constraint::Length(1), Constraint::Length(1), Constraint::Fill(1)];
    let [top, _, rest] = Layout::vertical(heights).areas(frame.area());
    frame.render_widget(title(database), top);
    if sample.queues.is_empty() {
        frame.render_widget(NO_QUEUES.dim(), rest);
        return;
    }
    let rows: Vec<_> = sample.queues.iter().map(cells).collect();
    let widths = fitting_widths(&rows, rest.width.into());
    let shown = widths.len();
    let rows = rows.into_iter().map(|row| Row::new(row.into_iter().take(shown)));
    let table = widgets::Table::new(rows, widths).column_spacing(GAP);
    frame.render_widget(table.header(Row::new(HEADINGS.into_iter().take(shown)).dim()), rest);
}

/// The widths of the columns that fit. A column that does not fit is left out: half a count would be another count.
fn fitting_widths(rows: &[[Span<'_>; 7]], available: usize) -> Vec<Constraint> {
    let gap = usize::from(GAP);
    let content: [usize; 7] = array::from_fn(|column| {
        rows.iter().map(|row| row[column].width()).fold(HEADINGS[column].len(), usize::max)
    });
    let padded: [usize; 7] = array::from_fn(|column| content[column].max(MIN_WIDTHS[column]));
    let is_wide_enough = padded.iter().sum::<usize>() + gap * (padded.len() - 1) <= available;
    let widths = if is_wide_enough { padded } else { content };
    let mut end = 0;
    let fitting = widths.iter().take_while(|width| {
        end += **width + gap;
        end <= available + gap
    });
    // The first column is cut instead.
    let shown = fitting.count().max(1);
    widths
        .iter()
        .take(shown)
        .map(|width| Constraint::Length(u16::try_from(*width).unwrap_or(u16::MAX)))
        .collect()
}

fn cells(trend: &Trend) -> [Span<'static>; 7] {
    let queue = &trend.queue;
    let highlighted = |count: Count, style: Style| if count.count > 0 { style } else { Style::new().dim() };
    let dead = with_change(queue.dead, trend.dead_per_second);
    [
        queue.queue.to_string().bold(),
        Span::raw(with_change(queue.pending, trend.pending_per_second)),
        Span::raw(queue.leased.to_text()),
        Span::raw(queue.scheduled.to_text()),
        Span::styled(dead, highlighted(queue.dead, Style::new().red())),
        Span::styled(queue.blocked_keys.to_text(), highlighted(queue.blocked_keys, Style::new().yellow())),
        Span::raw(queue.lag.map_or_else(|| "-".to_owned(), format::span)),
    ]
}

/// A count, and its change per second when there is one.
fn with_change(count: Count, per_second: Option<f64>) -> String {
    match per_second {
        Some(change) if change.abs() >= 0.5 => format!("{} {change:+.0}/s", count.to_text()),
        _ => count.to_text(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alternate_screen::drawn_text;
    use postrider::{Message, Outbox, memory::MemoryStore};

    async fn staged(store: &MemoryStore, count: usize) -> Vec<Queue> {
        let message = Message::builder("orders").json(&1).build().unwrap();
        let mut tx = store.begin();
        store.stage_all(&mut tx, &vec![message; count]).await.unwrap();
        tx.commit();
        status::queues(store, None).await.unwrap()
    }

    #[tokio::test]
    async fn counts_change_between_samples_gives_rate_per_second() {
        let store = MemoryStore::new();
        let (mut previous, began_at) = (PreviousSample::default(), Instant::now());
        let first = previous.compare(staged(&store, 10).await, began_at);
        assert_eq!(first.queues[0].pending_per_second, None);
        let second = previous.compare(staged(&store, 30).await, began_at + Duration::from_secs(2));
        assert_eq!(second.queues[0].pending_per_second, Some(15.0));
        assert_eq!(second.queues[0].dead_per_second, Some(0.0));
        let drawn = drawn_text(90, 24, |frame| draw(frame, &second, "memory"));
        insta::assert_snapshot!(drawn.replace(char::is_numeric, "9"));
    }

    #[tokio::test]
    async fn narrow_screen_leaves_out_last_columns() {
        let queues = staged(&MemoryStore::new(), 1234).await;
        let sample = PreviousSample::default().compare(queues, Instant::now());
        for (columns, heading) in [
            (90, "QUEUE             PENDING         LEASED  SCHEDULED  DEAD          BLOCKED  LAG"),
            (60, "QUEUE   PENDING  LEASED  SCHEDULED  DEAD  BLOCKED  LAG"),
            (40, "QUEUE   PENDING  LEASED  SCHEDULED  DEAD"),
            (39, "QUEUE   PENDING  LEASED  SCHEDULED"),
            (15, "QUEUE   PENDING"),
            (14, "QUEUE"),
            (3, "QUE"),
        ] {
            let drawn = drawn_text(columns, 24, |frame| draw(frame, &sample, "memory"));
            let lines: Vec<_> = drawn.lines().collect();
            assert_eq!(lines[2], heading, "{columns}");
            assert_eq!(lines[3].contains("1234"), columns >= 15, "{columns}");
        }
        for (columns, rows) in [(0, 0), (0, 24), (90, 0), (90, 1), (90, 3)] {
            drawn_text(columns, rows, |frame| draw(frame, &sample, "memory"));
        }
    }

    #[tokio::test]
    async fn capped_count_has_no_rate() {
        let store = MemoryStore::new();
        let (mut previous, began_at) = (PreviousSample::default(), Instant::now());
        let mut queues = staged(&store, 10).await;
        queues[0].pending.capped = true;
        previous.compare(queues, began_at);
        let later = previous.compare(staged(&store, 30).await, began_at + Duration::from_secs(2));
        assert_eq!(later.queues[0].pending_per_second, None);
    }
}
