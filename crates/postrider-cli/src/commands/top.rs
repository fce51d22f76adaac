//! `postrider top`: how the queues are, and how they change, as long as somebody looks.

use super::status::{self, Count, Queue};
use crate::{
    answer,
    canvas::{Canvas, Line, Look, Paint, Size, render},
    duration,
    exit::Exit,
    opened::Opened,
    problem::Problem,
    shared::Target,
    words,
};
use postrider::QueueName;
use serde::Serialize;
use std::{collections::BTreeMap, time::Duration};
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

const EXAMPLES: &str = "Examples:
  postrider top --db shop.db                          until Ctrl-C
  postrider top --db shop.db --jsonl --every 10s      an object each time, for programs
  postrider top --db shop.db --count 1                one look, as text

Behind a count stands by how much it changes a second: +20/s that more come than go. A count with + stopped at its cap. Where
stdout is no terminal, each look is written below the last.";

/// Whatever is drawn has at least these.
const WIDTHS: [usize; 7] = [18, 16, 8, 9, 14, 9, 8];

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    target: Target,

    /// How often it looks
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = duration::parse)]
    every: Duration,

    /// Look so often, and end
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,

    /// Print one object of JSON a look, and nothing else, on stdout
    #[arg(long)]
    jsonl: bool,
}

/// What one look found, for programs. Its keys are a promise.
#[derive(Debug, Serialize)]
struct Seen {
    queues: Vec<Trend>,
}

#[derive(Debug, Serialize)]
struct Trend {
    #[serde(flatten)]
    queue: Queue,
    /// By how much it changes; none at the first look, and where a count stopped at its cap.
    pending_per_second: Option<f64>,
    dead_per_second: Option<f64>,
}

/// What the last look found, to compare with.
#[derive(Debug, Default)]
struct Memory {
    at: Option<Instant>,
    queues: BTreeMap<QueueName, (Count, Count)>,
}

pub(crate) async fn run(args: Args, stop: CancellationToken) -> Result<Exit, Problem> {
    // A second signal, or an error, must find the terminal as it was: the canvas is dropped before anything is said.
    args.target.look(&stop, async |opened| watch(opened, &args).await).await
}

async fn watch(opened: &Opened, args: &Args) -> Result<Exit, Problem> {
    let inspect = opened.inspect();
    let canvas = if args.jsonl { None } else { Canvas::open() };
    let mut memory = Memory::default();
    let mut clock = interval(args.every);
    clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut looks = 0;
    loop {
        clock.tick().await;
        let queues = status::queues(&*inspect, None).await.map_err(|error| opened.problem(&error))?;
        let seen = memory.compare(queues, Instant::now());
        let picture = || lines(&seen, &opened.database().to_string());
        match &canvas {
            Some(canvas) => canvas.draw(|_| picture()),
            None if args.jsonl => answer::json(&seen)?,
            None => {
                let unbounded = Size { columns: usize::MAX, rows: usize::MAX };
                let gap = if looks > 0 { "\n" } else { "" };
                answer::text(&format!("{gap}{}", render(&picture(), unbounded, Paint::Plain).join("\n")))?;
            }
        }
        looks += 1;
        if args.count.is_some_and(|count| looks >= count) {
            return Ok(Exit::Well);
        }
    }
}

impl Memory {
    fn compare(&mut self, queues: Vec<Queue>, now: Instant) -> Seen {
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
        Seen { queues: trends.collect() }
    }
}

fn lines(seen: &Seen, database: &str) -> Vec<Line> {
    let title = vec![
        (Look::Bold, "postrider top".to_owned()),
        (Look::Plain, format!("  {database}")),
        (Look::Faint, "  Ctrl-C stops it".to_owned()),
    ];
    let mut lines = vec![title, Line::new()];
    if seen.queues.is_empty() {
        lines.push(vec![(Look::Faint, "no queues yet".to_owned())]);
        return lines;
    }
    let name = seen.queues.iter().map(|trend| trend.queue.queue.as_str().chars().count()).max();
    let mut widths = WIDTHS;
    widths[0] = widths[0].max(name.unwrap_or_default() + 2);
    let headings = ["QUEUE", "PENDING", "LEASED", "WAITING", "DEAD", "BLOCKED", "LAG"];
    lines.push(row(headings.map(|heading| (Look::Faint, heading.to_owned())), widths));
    lines.extend(seen.queues.iter().map(|trend| row(cells(trend), widths)));
    lines
}

fn cells(trend: &Trend) -> [(Look, String); 7] {
    let queue = &trend.queue;
    let warned = |count: Count, look| if count.count > 0 { look } else { Look::Faint };
    [
        (Look::Bold, queue.queue.to_string()),
        (Look::Plain, changing(queue.pending, trend.pending_per_second)),
        (Look::Plain, queue.leased.shown()),
        (Look::Plain, queue.waiting.shown()),
        (warned(queue.dead, Look::Red), changing(queue.dead, trend.dead_per_second)),
        (warned(queue.blocked_keys, Look::Yellow), queue.blocked_keys.shown()),
        (Look::Plain, queue.lag.map_or_else(|| "-".to_owned(), words::span)),
    ]
}

/// A count, and by how much it changes if it does.
fn changing(count: Count, per_second: Option<f64>) -> String {
    match per_second {
        Some(change) if change.abs() >= 0.5 => format!("{} {change:+.0}/s", count.shown()),
        _ => count.shown(),
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
    async fn a_change_is_told_by_the_second() {
        let store = MemoryStore::new();
        let (mut memory, began_at) = (Memory::default(), Instant::now());
        let first = memory.compare(staged(&store, 10).await, began_at);
        assert_eq!(first.queues[0].pending_per_second, None);
        let second = memory.compare(staged(&store, 30).await, began_at + Duration::from_secs(2));
        assert_eq!(second.queues[0].pending_per_second, Some(15.0));
        assert_eq!(second.queues[0].dead_per_second, Some(0.0));
        let drawn = render(&lines(&second, "memory"), Size { columns: 90, rows: 24 }, Paint::Plain);
        insta::assert_snapshot!(drawn.join("\n").replace(char::is_numeric, "9"));
    }

    #[tokio::test]
    async fn where_a_count_stopped_no_change_is_told() {
        let store = MemoryStore::new();
        let (mut memory, began_at) = (Memory::default(), Instant::now());
        let mut queues = staged(&store, 10).await;
        queues[0].pending.capped = true;
        memory.compare(queues, began_at);
        let later = memory.compare(staged(&store, 30).await, began_at + Duration::from_secs(2));
        assert_eq!(later.queues[0].pending_per_second, None);
    }
}
