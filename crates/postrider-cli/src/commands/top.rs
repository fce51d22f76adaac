//! `postrider top`: live statistics of the queues.

use super::status::{self, Count, Queue};
use crate::{
    canvas::{Canvas, Line, Look, Paint, Size, render},
    duration,
    exit::Exit,
    format,
    open_database::OpenDatabase,
    output,
    problem::Problem,
    shared::Target,
};
use postrider::QueueName;
use serde::Serialize;
use std::{collections::BTreeMap, time::Duration};
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

const EXAMPLES: &str = "Examples:
  postrider top --db shop.db                      until Ctrl-C
  postrider top --db shop.db --jsonl --every 10s  one JSON object per sample
  postrider top --db shop.db --count 1            one sample, as text

The change per second follows a count: +20/s means that the backlog grows. A
count such as 10000+ is capped. When stdout is not a terminal, each sample is
written below the last.";

/// Minimum widths of the columns.
const WIDTHS: [usize; 7] = [18, 16, 8, 11, 14, 9, 8];

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
    // After a second signal, or an error, the terminal must be restored: the canvas is dropped before anything is printed.
    args.target.look(&stop, async |opened| watch(opened, &args).await).await
}

async fn watch(opened: &OpenDatabase, args: &Args) -> Result<Exit, Problem> {
    let inspect = opened.inspect();
    let canvas = if args.jsonl { None } else { Canvas::open() };
    let mut previous = PreviousSample::default();
    let mut clock = interval(args.every);
    clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut samples = 0;
    loop {
        clock.tick().await;
        let queues = status::queues(&*inspect, None).await.map_err(|error| opened.problem(&error))?;
        let sample = previous.compare(queues, Instant::now());
        let picture = || lines(&sample, &opened.database().to_string());
        match &canvas {
            Some(canvas) => canvas.draw(|_| picture()),
            None if args.jsonl => output::json(&sample)?,
            None => {
                let unbounded = Size { columns: usize::MAX, rows: usize::MAX };
                let gap = if samples > 0 { "\n" } else { "" };
                output::text(&format!("{gap}{}", render(&picture(), unbounded, Paint::Plain).join("\n")))?;
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

fn lines(sample: &Sample, database: &str) -> Vec<Line> {
    let title = vec![
        (Look::Bold, "postrider top".to_owned()),
        (Look::Plain, format!("  {database}")),
        (Look::Faint, "  Ctrl-C to quit".to_owned()),
    ];
    let mut lines = vec![title, Line::new()];
    if sample.queues.is_empty() {
        lines.push(vec![(Look::Faint, "no queues yet".to_owned())]);
        return lines;
    }
    let name = sample.queues.iter().map(|trend| trend.queue.queue.as_str().chars().count()).max();
    let mut widths = WIDTHS;
    widths[0] = widths[0].max(name.unwrap_or_default() + 2);
    let headings = ["QUEUE", "PENDING", "LEASED", "SCHEDULED", "DEAD", "BLOCKED", "LAG"];
    lines.push(row(headings.map(|heading| (Look::Faint, heading.to_owned())), widths));
    lines.extend(sample.queues.iter().map(|trend| row(cells(trend), widths)));
    lines
}

fn cells(trend: &Trend) -> [(Look, String); 7] {
    let queue = &trend.queue;
    let highlighted = |count: Count, look| if count.count > 0 { look } else { Look::Faint };
    [
        (Look::Bold, queue.queue.to_string()),
        (Look::Plain, with_change(queue.pending, trend.pending_per_second)),
        (Look::Plain, queue.leased.to_text()),
        (Look::Plain, queue.scheduled.to_text()),
        (highlighted(queue.dead, Look::Red), with_change(queue.dead, trend.dead_per_second)),
        (highlighted(queue.blocked_keys, Look::Yellow), queue.blocked_keys.to_text()),
        (Look::Plain, queue.lag.map_or_else(|| "-".to_owned(), format::span)),
    ]
}

/// A count, and its change per second when there is one.
fn with_change(count: Count, per_second: Option<f64>) -> String {
    match per_second {
        Some(change) if change.abs() >= 0.5 => format!("{} {change:+.0}/s", count.to_text()),
        _ => count.to_text(),
    }
}

fn row(cells: [(Look, String); 7], widths: [usize; 7]) -> Line {
    let padded = |((look, text), width): ((Look, String), usize)| (look, format!("{text:<width$}"));
    cells.into_iter().zip(widths).map(padded).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
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
        let drawn = render(&lines(&second, "memory"), Size { columns: 90, rows: 24 }, Paint::Plain);
        insta::assert_snapshot!(drawn.join("\n").replace(char::is_numeric, "9"));
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
