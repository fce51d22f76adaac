//! `postrider check`: compares lag, dead letters and blocked keys with thresholds, for monitoring systems.

use super::status;
use crate::{
    duration, exit::Exit, format, open_database::OpenDatabase, output, problem::Problem, shared::Target,
};
use postrider::{Error, QueueName, inspect::Inspect};
use serde::Serialize;
use std::{fmt, time::Duration};
use tokio_util::sync::CancellationToken;

const EXAMPLES: &str = "Examples:
  postrider check --db shop.db --warn-lag 1m --crit-lag 5m --warn-dead 1
  postrider check --queue orders --crit-lag 5m --format nagios
  postrider check --format prometheus > /var/lib/node_exporter/postrider.prom

The exit code is 0 for OK, 3 for WARNING, and 1 for CRITICAL or UNKNOWN. With
--format nagios it is 0, 1, 2 and 3 for OK, WARNING, CRITICAL and UNKNOWN. A
value that equals its threshold violates it.";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    target: Target,

    /// Only this queue
    #[arg(long)]
    queue: Option<QueueName>,

    #[command(flatten)]
    limits: Limits,

    /// Output format
    #[arg(long, value_name = "FORMAT", default_value = "line", conflicts_with = "json")]
    format: Format,

    /// Print one JSON object to stdout, and nothing else
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, clap::Args)]
struct Limits {
    /// Warning threshold for the lag: 30s, 5m, 1h
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    warn_lag: Option<Duration>,

    /// Critical threshold for the lag
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    crit_lag: Option<Duration>,

    /// Warning threshold for dead letters
    #[arg(long, value_name = "N")]
    warn_dead: Option<u64>,

    /// Critical threshold for dead letters
    #[arg(long, value_name = "N")]
    crit_dead: Option<u64>,

    /// Warning threshold for blocked keys
    #[arg(long, value_name = "N")]
    warn_blocked: Option<u64>,

    /// Critical threshold for blocked keys
    #[arg(long, value_name = "N")]
    crit_blocked: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// One line: state, violations and values
    Line,
    /// The same line, with the exit codes of Nagios plugins
    Nagios,
    /// Metrics for the textfile collector of a node exporter
    Prometheus,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
enum State {
    Ok,
    Warning,
    Critical,
    Unknown,
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ok => "OK",
            Self::Warning => "WARNING",
            Self::Critical => "CRITICAL",
            Self::Unknown => "UNKNOWN",
        })
    }
}

/// The outcome as JSON. Its keys are stable.
#[derive(Debug, Serialize)]
struct Report {
    state: State,
    queues: Vec<Queue>,
    /// The thresholds that are violated, in words.
    violations: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Queue {
    queue: QueueName,
    state: State,
    lag_seconds: f64,
    dead: u64,
    blocked_keys: u64,
}

pub(crate) async fn run(args: Args, stop: CancellationToken) -> Result<Exit, Problem> {
    match (args.target.look(&stop, async |opened| check(opened, &args).await).await, args.format) {
        (Err(problem), Format::Nagios) => {
            output::text(&format!("{} - {}", State::Unknown, problem.one_line().replace(['|', '\n'], " ")))?;
            Ok(Exit::Code(3))
        }
        (Err(problem), Format::Prometheus) => {
            output::text(&metrics(None))?;
            Err(problem)
        }
        (outcome, _) => outcome,
    }
}

async fn check(opened: &OpenDatabase, args: &Args) -> Result<Exit, Problem> {
    let report = report(&*opened.backend(), args).await.map_err(|error| opened.problem(&error))?;
    if let (Some(queue), []) = (&args.queue, &report.queues[..]) {
        return Err(status::missing(queue));
    }
    match args.format {
        _ if args.json => output::json(&report)?,
        Format::Line | Format::Nagios => output::text(&line(&report, args.limits))?,
        Format::Prometheus => output::text(&metrics(Some(&report)))?,
    }
    Ok(match (report.state, args.format) {
        (State::Ok, _) => Exit::Success,
        (State::Warning, Format::Nagios) => Exit::Code(1),
        (State::Warning, _) => Exit::Warnings,
        (State::Critical | State::Unknown, Format::Nagios) => Exit::Code(2),
        (State::Critical | State::Unknown, _) => Exit::Failed,
    })
}

async fn report(inspect: &dyn Inspect, args: &Args) -> Result<Report, Error> {
    let mut report = Report { state: State::Ok, queues: Vec::new(), violations: Vec::new() };
    let queues = status::queues(inspect, args.queue.as_ref()).await?;
    for status::Queue { queue, lag, dead, blocked_keys, .. } in queues {
        let (lag, dead, blocked_keys) = (lag.unwrap_or_default(), dead.count, blocked_keys.count);
        let (state, violations) = evaluate(&queue, lag, dead, blocked_keys, args.limits);
        report.queues.push(Queue { queue, state, lag_seconds: lag.as_secs_f64(), dead, blocked_keys });
        report.violations.extend(violations);
        report.state = report.state.max(state);
    }
    Ok(report)
}

fn evaluate(
    queue: &QueueName,
    lag: Duration,
    dead: u64,
    blocked: u64,
    limits: Limits,
) -> (State, Vec<String>) {
    let Limits { warn_lag, crit_lag, warn_dead, crit_dead, warn_blocked, crit_blocked } = limits;
    let (mut state, mut violations) = (State::Ok, Vec::new());
    let mut record = |level: State, words: String| {
        if level > State::Ok {
            violations.push(format!("{queue} {words}"));
            state = state.max(level);
        }
    };
    record(level(lag, warn_lag, crit_lag), format!("lag is {}", format::span(lag)));
    record(level(dead, warn_dead, crit_dead), format!("has {}", plural(dead, "dead letter")));
    record(level(blocked, warn_blocked, crit_blocked), format!("has {}", plural(blocked, "blocked key")));
    (state, violations)
}

fn level<T: PartialOrd + Copy>(value: T, warn: Option<T>, crit: Option<T>) -> State {
    let reaches = |limit: Option<T>| limit.is_some_and(|limit| value >= limit);
    match (reaches(crit), reaches(warn)) {
        (true, _) => State::Critical,
        (false, true) => State::Warning,
        (false, false) => State::Ok,
    }
}

/// `WARNING - orders has 2 dead letters | 'orders lag'=0.000s;60;300 …`
fn line(report: &Report, limits: Limits) -> String {
    let Limits { warn_lag, crit_lag, warn_dead, crit_dead, warn_blocked, crit_blocked } = limits;
    let words = match (&report.violations[..], report.queues.len()) {
        ([], number) => plural(number as u64, "queue"),
        (violations, _) => violations.join(", "),
    };
    let seconds = |limit: Option<Duration>| limit.map(|limit| limit.as_secs_f64());
    // A bar ends the text, and a quote ends the label of a value.
    let mut line = format!("{} - {}", report.state, words.replace('|', "/"));
    for (index, Queue { queue, lag_seconds, dead, blocked_keys, .. }) in report.queues.iter().enumerate() {
        let bar = if index == 0 { " |" } else { "" };
        let queue = queue.as_str().replace('\'', "''").replace(['=', '|'], "_");
        line.push_str(&format!(
            "{bar} '{queue} lag'={lag_seconds:.3}s;{};{} '{queue} dead'={dead};{};{} '{queue} blocked'={blocked_keys};{};{}",
            optional(seconds(warn_lag)),
            optional(seconds(crit_lag)),
            optional(warn_dead),
            optional(crit_dead),
            optional(warn_blocked),
            optional(crit_blocked),
        ));
    }
    line
}

/// A count with its noun: `1 message`, `2 messages`.
pub(super) fn plural(count: u64, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

fn optional<T: ToString>(limit: Option<T>) -> String {
    limit.map(|limit| limit.to_string()).unwrap_or_default()
}

fn metrics(report: Option<&Report>) -> String {
    type Value = fn(&Queue) -> f64;
    let gauges: [(&str, &str, Value); 4] = [
        ("lag_seconds", "Age of the oldest message that is due.", |queue| queue.lag_seconds),
        ("dead", "Dead letters.", |queue| queue.dead as f64),
        ("blocked_keys", "Ordering keys that wait for a retry or are parked.", |queue| {
            queue.blocked_keys as f64
        }),
        ("state", "0 OK, 1 WARNING, 2 CRITICAL.", |queue| f64::from(queue.state as u8)),
    ];
    let up = u8::from(report.is_some());
    let mut text = "# HELP postrider_check_up Whether the database could be queried.\n".to_owned();
    text.push_str(&format!("# TYPE postrider_check_up gauge\npostrider_check_up {up}\n"));
    for (name, help, value) in gauges {
        text.push_str(&format!(
            "# HELP postrider_check_{name} {help}\n# TYPE postrider_check_{name} gauge\n"
        ));
        for queue in report.iter().flat_map(|report| &report.queues) {
            let label = queue.queue.as_str().replace('\\', r"\\").replace('"', r#"\""#);
            text.push_str(&format!("postrider_check_{name}{{queue=\"{label}\"}} {}\n", value(queue)));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn critical_threshold_overrides_warning_threshold() {
        assert_eq!(level(1, None, None), State::Ok);
        assert_eq!(level(1, Some(2), Some(3)), State::Ok);
        assert_eq!(level(2, Some(2), Some(3)), State::Warning);
        assert_eq!(level(3, Some(2), Some(3)), State::Critical);
        assert_eq!(level(3, None, Some(3)), State::Critical);
    }
}
