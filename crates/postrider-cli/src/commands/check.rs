//! `postrider check`: lag, dead letters and blocked keys against limits, for monitoring systems.

use super::status;
use crate::{answer, duration, exit::Exit, opened::Opened, problem::Problem, shared::Target, words};
use postrider::{Error, QueueName, inspect::Inspect};
use serde::Serialize;
use std::{fmt, time::Duration};
use tokio_util::sync::CancellationToken;

const EXAMPLES: &str = "Examples:
  postrider check --db shop.db --warn-lag 1m --crit-lag 5m --warn-dead 1
  postrider check --queue orders --crit-lag 5m --format nagios
  postrider check --format prometheus > /var/lib/node_exporter/postrider.prom

It ends with 0 when all is well, with 3 at a warning, and with 1 when it is critical or cannot be found out. With --format nagios it
ends with 0, 1, 2 and 3, as plugins do: well, warning, critical, unknown. A limit that is reached counts.";

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

    /// How it is told
    #[arg(long, value_name = "FORMAT", default_value = "line", conflicts_with = "json")]
    format: Format,

    /// Print one object of JSON, and nothing else, on stdout
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, clap::Args)]
struct Limits {
    /// Warn when what is due has waited for so long: 30s, 5m, 1h
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    warn_lag: Option<Duration>,

    /// Be critical when what is due has waited for so long
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    crit_lag: Option<Duration>,

    /// Warn at so many dead letters
    #[arg(long, value_name = "N")]
    warn_dead: Option<u64>,

    /// Be critical at so many dead letters
    #[arg(long, value_name = "N")]
    crit_dead: Option<u64>,

    /// Warn at so many blocked keys
    #[arg(long, value_name = "N")]
    warn_blocked: Option<u64>,

    /// Be critical at so many blocked keys
    #[arg(long, value_name = "N")]
    crit_blocked: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// A line: the state, in words, and the numbers
    Line,
    /// The same line, with the exit codes of plugins for Nagios, Icinga and their like
    Nagios,
    /// Metrics as Prometheus reads them, for a file that a node exporter collects
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

/// What was found, for programs. Its keys are a promise.
#[derive(Debug, Serialize)]
struct Report {
    state: State,
    queues: Vec<Queue>,
    /// What reached a limit.
    reached: Vec<String>,
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
            answer::text(&format!("{} - {}", State::Unknown, problem.in_a_line().replace(['|', '\n'], " ")))?;
            Ok(Exit::Code(3))
        }
        (Err(problem), Format::Prometheus) => {
            answer::text(&metrics(None))?;
            Err(problem)
        }
        (ended, _) => ended,
    }
}

async fn check(opened: &Opened, args: &Args) -> Result<Exit, Problem> {
    let report = report(&*opened.inspect(), args).await.map_err(|error| opened.problem(&error))?;
    if let (Some(queue), []) = (&args.queue, &report.queues[..]) {
        return Err(status::missing(queue));
    }
    match args.format {
        _ if args.json => answer::json(&report)?,
        Format::Line | Format::Nagios => answer::text(&line(&report, args.limits))?,
        Format::Prometheus => answer::text(&metrics(Some(&report)))?,
    }
    Ok(match (report.state, args.format) {
        (State::Ok, _) => Exit::Well,
        (State::Warning, Format::Nagios) => Exit::Code(1),
        (State::Warning, _) => Exit::Warned,
        (State::Critical | State::Unknown, Format::Nagios) => Exit::Code(2),
        (State::Critical | State::Unknown, _) => Exit::Failed,
    })
}

async fn report(inspect: &dyn Inspect, args: &Args) -> Result<Report, Error> {
    let mut report = Report { state: State::Ok, queues: Vec::new(), reached: Vec::new() };
    let queues = status::queues(inspect, args.queue.as_ref()).await?;
    for status::Queue { queue, lag, dead, blocked_keys, .. } in queues {
        let (lag, dead, blocked_keys) = (lag.unwrap_or_default(), dead.count, blocked_keys.count);
        let (state, reached) = judge(&queue, lag, dead, blocked_keys, args.limits);
        report.queues.push(Queue { queue, state, lag_seconds: lag.as_secs_f64(), dead, blocked_keys });
        report.reached.extend(reached);
        report.state = report.state.max(state);
    }
    Ok(report)
}

fn judge(queue: &QueueName, lag: Duration, dead: u64, blocked: u64, limits: Limits) -> (State, Vec<String>) {
    let Limits { warn_lag, crit_lag, warn_dead, crit_dead, warn_blocked, crit_blocked } = limits;
    let (mut state, mut reached) = (State::Ok, Vec::new());
    let mut told = |level: State, words: String| {
        if level > State::Ok {
            reached.push(format!("{queue} {words}"));
            state = state.max(level);
        }
    };
    told(level(lag, warn_lag, crit_lag), format!("lags {} behind", words::span(lag)));
    told(level(dead, warn_dead, crit_dead), format!("has {dead} dead"));
    told(level(blocked, warn_blocked, crit_blocked), format!("has {blocked} blocked"));
    (state, reached)
}

fn level<T: PartialOrd + Copy>(value: T, warn: Option<T>, crit: Option<T>) -> State {
    let reaches = |limit: Option<T>| limit.is_some_and(|limit| value >= limit);
    match (reaches(crit), reaches(warn)) {
        (true, _) => State::Critical,
        (false, true) => State::Warning,
        (false, false) => State::Ok,
    }
}

/// `WARNING - orders has 2 dead | 'orders lag'=0.000s;60;300 …`
fn line(report: &Report, limits: Limits) -> String {
    let Limits { warn_lag, crit_lag, warn_dead, crit_dead, warn_blocked, crit_blocked } = limits;
    let words = match (&report.reached[..], report.queues.len()) {
        ([], 1) => "1 queue".to_owned(),
        ([], number) => format!("{number} queues"),
        (reached, _) => reached.join(", "),
    };
    let seconds = |limit: Option<Duration>| limit.map(|limit| limit.as_secs_f64());
    // A bar ends the words, and a quote the name of a number.
    let mut line = format!("{} - {}", report.state, words.replace('|', "/"));
    for (index, Queue { queue, lag_seconds, dead, blocked_keys, .. }) in report.queues.iter().enumerate() {
        let bar = if index == 0 { " |" } else { "" };
        let queue = queue.as_str().replace('\'', "''").replace(['=', '|'], "_");
        line.push_str(&format!(
            "{bar} '{queue} lag'={lag_seconds:.3}s;{};{} '{queue} dead'={dead};{};{} '{queue} blocked'={blocked_keys};{};{}",
            shown(seconds(warn_lag)),
            shown(seconds(crit_lag)),
            shown(warn_dead),
            shown(crit_dead),
            shown(warn_blocked),
            shown(crit_blocked),
        ));
    }
    line
}

fn shown<T: ToString>(limit: Option<T>) -> String {
    limit.map(|limit| limit.to_string()).unwrap_or_default()
}

fn metrics(report: Option<&Report>) -> String {
    type Value = fn(&Queue) -> f64;
    let gauges: [(&str, &str, Value); 4] = [
        ("lag_seconds", "How long the oldest message that is due has been waiting.", |queue| {
            queue.lag_seconds
        }),
        ("dead", "Dead letters.", |queue| queue.dead as f64),
        ("blocked_keys", "Keys that wait for a retry or for a hand.", |queue| queue.blocked_keys as f64),
        ("state", "0 when no limit is reached, 1 at a warning, 2 when it is critical.", |queue| {
            f64::from(queue.state as u8)
        }),
    ];
    let up = u8::from(report.is_some());
    let mut text = "# HELP postrider_check_up Whether the database could be asked.\n".to_owned();
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
    fn the_worse_limit_counts() {
        assert_eq!(level(1, None, None), State::Ok);
        assert_eq!(level(1, Some(2), Some(3)), State::Ok);
        assert_eq!(level(2, Some(2), Some(3)), State::Warning);
        assert_eq!(level(3, Some(2), Some(3)), State::Critical);
        assert_eq!(level(3, None, Some(3)), State::Critical);
    }
}
